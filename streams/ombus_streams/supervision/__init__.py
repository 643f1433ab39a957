"""Delegations as a pure fold of ``ombus.supervision.events``: states, checks, limits, decisions."""
