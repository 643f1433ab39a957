"""S22: status and view."""

import msgspec
import pytest
from ombus_streams.memory.commands import BadMode, NoSession, View, status, status_text, view

from tests.support.ledgers import (
    compacted,
    dropped,
    message,
    observation,
    observed,
    reflected,
    reflection,
)

BRANCH = [
    message("e1", "hello"),
    observed("c", observation(1, tokens=3), observation(2)),
    reflected("r", reflection(9, supports=(1,))),
    dropped("d", 1, 7),
]


def test_status_counts_dropped_ids_that_nobody_recorded() -> None:
    found = status(BRANCH, "s1")

    assert (found.n_recorded, found.n_dropped, found.n_active, found.n_visible) == (2, 2, 1, 1)
    assert (found.n_reflections, found.n_visible_reflections) == (1, 0)
    assert found.pool_tokens == 1
    assert len(status_text(found).splitlines()) == 3
    many = msgspec.structs.replace(found, raw_tokens=6_127)
    assert "Tokens: 6,127 in the branch" in status_text(many)


def test_the_full_view_shows_every_reflection_and_only_active_observations() -> None:
    found = view(BRANCH, "s1", "full")

    assert isinstance(found, View)
    assert (found.n_observations, found.n_reflections) == (1, 1)


def test_nothing_invalidated_is_in_any_view() -> None:
    for mode in (None, "full"):
        found = view(BRANCH, "s1", mode, invalidated_ids=frozenset({"e1"}))
        assert isinstance(found, View)
        assert (found.n_observations, found.n_reflections) == (0, 0)


def test_an_imported_payload_is_what_the_visible_view_shows() -> None:
    found = view([*BRANCH, compacted("k", (observation(5),))], "s1")

    assert isinstance(found, View)
    assert found.n_observations == 1
    assert "00000000005]" in found.text


def test_another_mode_is_answered_with_the_usage_and_no_session_is_an_error() -> None:
    assert view(BRANCH, "s1", "all") == BadMode()
    with pytest.raises(NoSession):
        view(BRANCH, "")
    with pytest.raises(NoSession):
        status(BRANCH, None)
