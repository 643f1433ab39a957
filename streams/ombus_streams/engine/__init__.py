"""Engines move records and keep rows; each implements the ports of ``runtime``."""
