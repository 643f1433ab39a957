"""What a parent hears of its child: S23.2's pump, as a fold of the child's own entries."""

import pytest
from ombus_schemas.admission import Policy, admit
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import utf16_length
from ombus_schemas.supervision import ChildMilestone, Delegation, Report
from ombus_streams.supervision.milestones import Telling, tell, telling_of

from tests.supervision.children import (
    bodies,
    brief,
    call,
    delegation,
    first,
    result,
    spoken,
    told,
)

SECRET = "hunter2-hunter2"


def state_of(said: Delegation) -> Telling:
    state = telling_of(first(said))
    assert state is not None
    return state


def heard(said: Delegation, *entries: Entry, at: tuple[int, ...] = ()) -> list[str]:
    """Return in brief what the parent hears of the first entry and ``entries``."""
    state = state_of(said)
    times = at or tuple(range(0, 1_000 * len(entries) + 1, 1_000))
    found: list[str] = []
    for ordinal, entry in enumerate([first(said), *entries], start=1):
        at_ms = times[min(ordinal - 1, len(times) - 1)]
        found += [brief(body) for body in bodies(tell(state, entry, ordinal, at_ms))]
    return found


def work(said: Delegation) -> list[Entry]:
    """Return two turns with a tool that works and one that fails, and the end."""
    return [
        spoken(said, "e1", "assistant", {"type": "text", "text": "hm"}, call("c1")),
        spoken(said, "e2", "tool", result("c1", result="fine")),
        spoken(said, "e3", "assistant", call("c2", "deploy")),
        spoken(said, "e4", "tool", result("c2", "deploy", error="no")),
        told(said, "e5", "agent_finished", status="finished"),
    ]


@pytest.mark.parametrize(
    ("report", "every", "when", "expected"),
    [
        ("on-complete", None, (), []),
        (
            "milestones", None, (),
            [
                "agent_started",
                "tool_execution_started bash", "tool_execution_finished bash",
                "tool_execution_started deploy", "tool_execution_error deploy",
                "agent_finished", "closed 6=6+0+0",
            ],
        ),
        ("milestones", 2, (), ["turn_started 2", "closed 1=1+0+0"]),
        ("milestones", 3, (), ["closed 0=0+0+0"]),
        (
            "milestones", 2, ("tool_execution_started:deploy",),
            ["turn_started 2", "tool_execution_started deploy", "closed 2=2+0+0"],
        ),
        ("milestones", None, ("agent_finished",), ["agent_finished", "closed 1=1+0+0"]),
        (
            "stream", None, (),
            [
                "agent_started",
                "turn_started 1", "tool_execution_started bash", "tool_execution_finished bash",
                "turn_finished 1",
                "turn_started 2", "tool_execution_started deploy", "tool_execution_error deploy",
                "turn_finished 2",
                "agent_finished", "closed 10=10+0+0",
            ],
        ),
    ],
)  # fmt: skip
def test_a_policy_chooses_what_is_heard(
    report: Report, every: int | None, when: tuple[str, ...], expected: list[str]
) -> None:
    said = delegation(report, every=every, when=when)

    assert heard(said, *work(said)) == expected


def test_messages_and_tokens_are_never_heard() -> None:
    said = delegation("stream")
    entries = [
        told(said, "e1", "message_delta", text="a"),
        told(said, "e2", "message_started"),
        told(said, "e3", "token", text="b"),
        spoken(said, "e4", "user", {"type": "text", "text": "words"}),
        spoken(said, "e5", "assistant", {"type": "tool_call_delta", "id": "c", "text": "ls"}),
    ]

    assert heard(said, *entries) == ["agent_started", "turn_started 1"]


def test_what_the_host_says_of_a_call_and_its_message_are_one_event() -> None:
    said = delegation("stream")
    entries = [
        told(said, "e1", "turn_started", turn=7),
        spoken(said, "e2", "assistant", call("c1")),
        told(said, "e3", "tool_execution_started", toolName="bash", toolCallId="c1"),
        told(said, "e4", "tool_execution_error", toolName="bash", toolCallId="c1"),
        spoken(said, "e5", "tool", result("c1", error="no")),
    ]

    assert heard(said, *entries) == [
        "agent_started", "turn_started 7", "tool_execution_started bash",
        "tool_execution_error bash",
    ]  # fmt: skip


def test_over_the_rate_events_are_counted_and_the_marker_comes_before_the_next_one() -> None:
    said = delegation(childEventsPerSecond=2)
    entries = [told(said, f"e{n}", "tool_execution_blocked") for n in range(1, 7)]
    at = (0, 1, 2, 3, 999, 1_000, 1_001)

    assert heard(said, *entries, at=at) == [
        "agent_started", "tool_execution_blocked",
        "coalesced 3", "tool_execution_blocked", "tool_execution_blocked",
    ]  # fmt: skip


def test_a_window_begins_with_the_first_event_after_the_last_one() -> None:
    said = delegation(childEventsPerSecond=1)
    entries = [told(said, f"e{n}", "tool_execution_blocked") for n in range(1, 4)]

    assert heard(said, *entries, at=(0, 1_500, 2_400, 2_500)) == [
        "agent_started", "tool_execution_blocked", "coalesced 1", "tool_execution_blocked",
    ]  # fmt: skip


def test_what_is_pending_is_told_at_the_end() -> None:
    said = delegation(childEventsPerSecond=1)
    entries = [told(said, "e1", "tool_execution_blocked"), told(said, "e2", "agent_finished")]

    assert heard(said, *entries, at=(0, 1, 2)) == [
        "agent_started", "coalesced 2", "closed 3=1+2+0",
    ]  # fmt: skip


def test_above_the_cap_one_marker_comes_and_then_the_sum() -> None:
    said = delegation(childEvents=2, childEventsPerSecond=2)
    entries = [told(said, f"e{n}", "tool_execution_blocked") for n in range(1, 6)]
    end = told(said, "e9", "agent_finished")

    assert heard(said, *entries, end, at=(0, 1, 2, 3, 1_000, 1_001, 1_002)) == [
        "agent_started", "tool_execution_blocked", "capped", "closed 7=2+0+5",
    ]  # fmt: skip


def test_an_event_above_the_byte_cap_caps_the_rest() -> None:
    said = delegation(childEventBytes=100)
    entries = [
        told(said, "e1", "tool_execution_blocked", reason="é" * 60),
        told(said, "e2", "tool_execution_blocked", reason="é" * 61),
        told(said, "e3", "tool_execution_blocked"),
        told(said, "e4", "agent_finished"),
    ]

    assert utf16_length('{"type":"tool_execution_blocked","reason":""}') + 60 > 100
    assert heard(said, *entries) == ["agent_started", "capped", "closed 5=1+0+4"]


def test_limits_of_a_first_entry_pass_no_hard_one() -> None:
    said = delegation(childEvents=1_000_000, childEventsPerSecond=1_000_000)
    entries = [told(said, f"e{n}", "tool_execution_blocked") for n in range(1, 5_002)]

    found = heard(said, *entries, at=tuple(n for n in range(5_002)))

    assert found.count("tool_execution_blocked") == 4_095
    assert found[-1] == "capped"


def test_a_milestone_holds_no_secret_and_no_text_of_a_message() -> None:
    said = delegation("stream")
    state = state_of(said)
    entries = [
        first(said, f"use {SECRET}"),
        spoken(
            said, "e1", "assistant", {"type": "text", "text": "private words"},
            call("c1", command=f"curl -H {SECRET}"),
        ),
        spoken(said, "e2", "tool", result("c1", result="private result")),
        told(said, "e3", "tool_execution_blocked", reason=f"{SECRET} is no key", args="private"),
        told(said, "e4", "tool_execution_blocked", error="AKIA" + "IOSFODNN7EXAMPLE"),
        told(said, "e5", "agent_suspended", reason="x" * 10_000),
    ]  # fmt: skip

    found = [
        event for n, entry in enumerate(entries) for event in tell(state, entry, n, n, [SECRET])
    ]
    text = str(found)

    assert SECRET not in text
    assert "private" not in text
    assert "find it" not in text
    assert "IOSFODNN7EXAMPLE" not in text
    assert "x" * 256 in text
    assert "x" * 257 not in text


def test_the_same_entry_has_the_same_events_with_the_same_ids() -> None:
    said = delegation("stream")
    once, twice = state_of(said), state_of(said)
    entries = [first(said), *work(said)]

    said_once = [tell(once, entry, n, n) for n, entry in enumerate(entries)]
    said_twice = [tell(twice, entry, n, n) for n, entry in enumerate(entries)]

    assert said_once == said_twice
    events = [event for heard in said_once for event in heard]
    assert len({event.id for event in events}) == len(events)
    assert {event.session_id for event in events} == {said.parent_session_id}
    for event in events:
        assert admit(event, Policy(role="worker")) == event


def test_a_milestone_names_its_child_its_turn_and_its_place() -> None:
    said = delegation()
    state = state_of(said)
    tell(state, first(said), 1, 0)

    found = bodies(tell(state, spoken(said, "e1", "assistant", call("c1"), call("c2")), 2, 5))

    assert [(body.child_ordinal, body.n) for body in found] == [(2, 0), (2, 1)]
    assert all(isinstance(body, ChildMilestone) and body.turn == 1 for body in found)
    assert {body.delegation_id for body in found} == {said.delegation_id}
    assert {body.child_session_id for body in found} == {f"{said.delegation_id}-session"}


def test_a_session_of_another_name_is_nobodys_child() -> None:
    said, other = delegation(), delegation(request="ask-2")
    entry = first(said)
    foreign = admit(
        {"id": "e0", "sessionId": f"{other.delegation_id}-session", "tenantId": "acme",
         "kind": "message", "message": {"role": "user", "content": "hi"},
         "metadata": entry.metadata},
        Policy(),
    )  # fmt: skip

    assert telling_of(entry) is not None
    assert telling_of(foreign) is None
    assert telling_of(told(said, "e0", "agent_started")) is None
