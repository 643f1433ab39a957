"""The short form of ``make supervision-chaos``."""

import os

from tests.supervision.chaos import chaos


def test_killed_parents_children_and_grandchildren_leave_each_delegation_one_end() -> None:
    rounds = int(os.environ.get("OMBUS_TEST_CHAOS_ROUNDS", "1"))

    said = chaos(rounds, seed=rounds, least=0)

    assert "each with one end" in said
