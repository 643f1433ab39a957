"""S11 and design.md sections 8 and 12 (rows 11, 12, 19)."""

from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.entries import Entry
from ombus_streams.memory.context import Block, blocks
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.pending import pending_window
from ombus_streams.memory.render import MAX_BYTES
from ombus_streams.memory.shared import SharedMemory

from tests.memory.test_pairing import call, result
from tests.support.ledgers import (
    compacted,
    memory,
    message,
    observation,
    observed,
    reflected,
    reflection,
)


def shown(found: tuple[Block, ...]) -> tuple[str, str]:
    return found[0].content, found[1].content if len(found) > 1 else ""


def test_active_memory_is_shown_also_when_it_was_recorded_inside_the_window() -> None:
    entries = [message("e1", "use pnpm"), observed("c", observation(1), coversUpToId="e1")]

    assert memory(1) in shown(blocks(entries))[0]
    assert memory(1) not in shown(blocks(entries, window="recent", alignment="record"))[0]


def test_active_memory_is_shown_after_an_imported_payload() -> None:
    entries = [
        observed("c1", observation(1)),
        compacted("k", (observation(1),)),
        observed("c2", observation(2)),
    ]

    assert memory(2) in shown(blocks(entries))[0]


def test_without_a_host_scope_nothing_shared_is_shown() -> None:
    entries = [message("e1", "use pnpm"), observed("c", observation(1), coversUpToId="e1")]
    shared = SharedMemory(observations=(observation(2),))

    assert blocks(entries, shared=shared) == blocks(entries)


def test_what_no_run_has_read_is_in_the_window_beyond_the_recent_messages() -> None:
    entries = [message(f"e{i}", f"word{i}") for i in range(20)]
    read = [*entries, observed("c", coversUpToId="e4")]

    window = shown(blocks(read, keep_recent=2))[1]

    assert "word5" in window
    assert "word4" not in window
    assert "word5" not in shown(blocks(read, keep_recent=2, window="recent"))[1]


def test_the_bytes_do_not_change_while_nothing_changes() -> None:
    entries = [message("e1", "use pnpm"), observed("c", observation(1), coversUpToId="e1")]

    assert blocks(entries) == blocks(list(entries))


def test_the_newest_user_message_is_in_the_window_cut_and_named_if_it_must_be() -> None:
    entries = [message("e1", "old " * 50), message("e2", "new " * 50)]

    window = shown(blocks(entries, max_tokens=5))[1]

    assert window.startswith("[e2] user: new")
    assert "[cut]" in window
    assert "over the budget: 1 message, e1]" in window
    assert "cut: 1 message, e2]" in window


def test_a_secret_is_gone_before_a_message_is_cut() -> None:
    entries = [message("e1", "abcdefgh hunter2 " * 50)]

    assert "hunt" not in shown(blocks(entries, max_tokens=4, secrets=["hunter2"]))[1]


def test_a_result_whose_call_is_outside_is_named_and_never_shown() -> None:
    entries = [
        message("e1", call("x"), role="assistant"),
        *(message(f"m{i}", "hello") for i in range(3)),
        message("e9", result("x"), role="tool"),
        observed("c", coversUpToId="e9"),
    ]

    window = shown(blocks(entries, keep_recent=2))[1]

    assert "tool_result" not in window
    assert "result without its call: 1 message, e9]" in window
    whole = shown(blocks(entries, keep_recent=2, window="recent", pairs="as_recorded"))[1]
    assert "tool_result" in whole


def test_nothing_invalidated_is_in_either_block() -> None:
    entries = [
        message("e1", "the old plan"),
        message("e2", "the new plan"),
        observed("c", observation(1), coversUpToId="e2"),
        reflected("r", reflection(9, supports=(1,))),
    ]

    found, window = shown(blocks(entries, invalidated_ids=frozenset({"e1"})))

    assert memory(1) not in found
    assert memory(9) not in found
    assert "old plan" not in window
    assert "withdrawn: 1 message, e1]" in window


def test_an_oversized_memory_loses_whole_lines_and_says_which() -> None:
    items = [
        observation(n, "x" * 3000, relevance="low" if n % 2 else "critical") for n in range(200)
    ]
    entries = [observed("c", *items)]

    text = shown(blocks(entries))[0]

    assert len(text) <= MAX_BYTES
    assert "(critical)" in text
    assert "not shown, over the budget:" in text.splitlines()[-1]
    assert all(line.endswith("x") for line in text.splitlines() if line.startswith("- ["))


def test_a_few_observations_cannot_be_pushed_out_by_reflections() -> None:
    entries = [
        observed("c", observation(1, "the only fact")),
        reflected("r", *(reflection(n, "y" * 3000) for n in range(2, 200))),
    ]

    text = shown(blocks(entries))[0]

    assert len(text) <= MAX_BYTES
    assert "the only fact" in text


@given(
    st.lists(st.sampled_from(["user", "assistant", "tool", "system"]), max_size=12),
    st.integers(0, 12),
    st.integers(0, 4),
    st.none() | st.integers(0, 40),
)
def test_every_source_is_read_or_shown_or_named(
    roles: list[str], n_covered: int, keep: int, max_tokens: int | None
) -> None:
    entries: list[Entry] = [message(f"e{i}", "word " * i, role=r) for i, r in enumerate(roles)]
    covered = entries[:n_covered]
    if covered:
        entries.append(observed("c", coversUpToId=covered[-1].id))

    window = pending_window(entries, keep, max_tokens)

    found = {entry.id for entry in (*covered, *window.entries)}
    ids = [entry.id for entry in entries]
    named = {
        name
        for omission in window.omissions
        for name in ids[ids.index(omission.first_id) : ids.index(omission.last_id) + 1]
    }
    assert all(entry.id in found | named for entry in entries if is_eligible(entry))
