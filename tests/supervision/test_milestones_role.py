"""The milestones role: one partition of entries onto the events, whatever dies in between."""

from collections.abc import Sequence

import msgspec
import pytest
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_streams.runtime.deriver import Deriver
from ombus_streams.supervision import child_events

from tests.supervision.children import (
    bodies,
    brief,
    call,
    delegation,
    first,
    invalidated,
    spoken,
    told,
)
from tests.support.engine import ManualClock, MemoryLog, MemoryStore
from tests.support.sessions import chat


class Role:
    """A deriver over logs and a store in memory."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.clock = ManualClock()
        self.entries, self.events = MemoryLog(self.clock), MemoryLog(self.clock)
        self.store, self._secrets = MemoryStore(), secrets
        self.reopen()

    def reopen(self) -> None:
        self.deriver = Deriver(self.store, self.entries, self.events, 0, self._secrets)

    def put(self, *entries: Entry) -> None:
        for entry in entries:
            self.clock.at_ms += 1_000
            self.entries.put(key_of(entry), encode(entry))

    def heard(self) -> list[Entry]:
        """Fold everything and return what is on the events' log, each event once."""
        while self.deriver.step():
            pass
        found = [
            msgspec.json.decode(record.value or b"", type=Entry) for record in self.events.records
        ]
        return list({entry.id: entry for entry in found}.values())

    def brief(self) -> list[str]:
        return [brief(body) for body in bodies(self.heard())]


def test_only_children_are_told_of() -> None:
    role, said = Role(), delegation()
    stranger = msgspec.structs.replace(
        spoken(said, "e1", "assistant", call("c1")), session_id="some-session"
    )
    late = msgspec.structs.replace(first(said), session_id="some-session", id="e2")

    role.put(chat("m1", None), stranger, late, first(said))
    role.entries.put(b"acme/x-session", b"no entry")
    role.put(spoken(said, "e1", "assistant", call("c1")))

    assert role.brief() == ["agent_started", "tool_execution_started bash"]


def test_settings_may_stand_before_the_first_entry() -> None:
    role, said = Role(), delegation()

    role.put(invalidated(said, "i1", "nothing"), first(said))

    assert [body.child_ordinal for body in bodies(role.heard())] == [2]


def test_the_first_entry_with_an_id_wins() -> None:
    role, said = Role(), delegation()
    entry = spoken(said, "e1", "assistant", call("c1"))

    role.put(first(said), entry, entry, spoken(said, "e1", "assistant", call("c2")))

    assert role.brief() == ["agent_started", "tool_execution_started bash"]


def test_nothing_invalidated_is_told() -> None:
    role, said = Role(), delegation()
    role.put(first(said), invalidated(said, "i1", "e1"))

    role.put(
        spoken(said, "e1", "assistant", call("c1")), spoken(said, "e2", "assistant", call("c2"))
    )

    assert [body.child_ordinal for body in bodies(role.heard())] == [1, 4]


def test_what_is_invalidated_before_it_is_sent_keeps_its_place_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    role, said = Role(), delegation()
    role.put(first(said), spoken(said, "e1", "assistant", call("c1", "private_tool")))
    with monkeypatch.context() as patch:
        patch.setattr(role.deriver, "emit", lambda: None)  # It was killed before it could send.
        role.deriver.step()
    role.reopen()
    role.put(invalidated(said, "i1", "e1"))
    with monkeypatch.context() as patch:
        patch.setattr(role.deriver, "emit", lambda: None)
        role.deriver.step()
    role.reopen()

    heard = role.heard()

    assert [brief(body) for body in bodies(heard)] == ["agent_started", "tool_execution_started"]
    assert "private_tool" not in str(heard)


@pytest.mark.parametrize("max_records", [1, 2, 100])
def test_a_refold_says_the_same_again(max_records: int) -> None:
    role, said = Role(), delegation("stream", childEventsPerSecond=2)
    role.put(first(said))
    for n in range(20):
        role.clock.at_ms -= 800
        role.put(told(said, f"e{n}", "tool_execution_blocked"))
    role.put(told(said, "end", "agent_finished"))
    once = role.heard()
    rows = dict(role.store.rows.rows)

    role.store.wipe()
    role.reopen()
    while role.deriver.step(max_records):
        role.reopen()

    assert role.heard() == once
    assert dict(role.store.rows.rows) == rows


def test_a_killed_commit_leaves_nothing_and_is_done_again() -> None:
    role, said = Role(), delegation()
    role.put(first(said), spoken(said, "e1", "assistant", call("c1")))
    role.store.fail_next = True
    with pytest.raises(OSError, match="no space"):
        role.deriver.step()
    assert role.events.records == []

    role.reopen()

    assert role.brief() == ["agent_started", "tool_execution_started bash"]


def test_another_log_under_the_store_is_folded_anew() -> None:
    role, said = Role(), delegation()
    role.put(chat("m1", None), first(said))
    role.heard()
    role.entries.records.clear()
    other = delegation(request="ask-2")
    role.put(first(other))

    role.reopen()

    assert {body.delegation_id for body in bodies(role.heard())} == {
        said.delegation_id, other.delegation_id,
    }  # fmt: skip


def test_a_number_that_no_row_holds_is_not_told() -> None:
    role, said = Role(), delegation("stream")
    huge = msgspec.structs.replace(delegation(request="ask-2"), depth=10**29)

    role.put(first(huge), first(said), told(said, "e1", "turn_started", turn=10**29))
    role.put(told(said, "e2", "turn_started", turn=7))

    assert role.brief() == ["agent_started", "turn_started 1", "turn_started 7"]


def test_an_entry_that_cannot_be_told_is_passed_over_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    role, said = Role(), delegation("stream")
    role.put(first(said), told(said, "e1", "turn_started", turn=3))
    monkeypatch.setattr(child_events, "MAX_COUNT", 10**40)  # As a release would that checks less.
    role.put(told(said, "e2", "turn_started", turn=10**29), told(said, "e3", "turn_started"))

    assert role.brief() == ["agent_started", "turn_started 3", "turn_started 4"]
    assert role.deriver.n_illegal == 1
