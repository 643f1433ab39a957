"""Providers answer model turns: ``extractive`` needs no model, ``scripted`` is for tests."""
