"""No hole and no half pair, at every position of every leaf, for every cut (design.md section 8).

The worker plants a marker word for each source; a marker that can be read nowhere is a hole.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import compactor, reading, recent
from ombus_streams.memory.branches import rebuild
from ombus_streams.memory.coverage import is_eligible
from ombus_streams.memory.effects import RunCompactor
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.pairing import NO_RESULT_YET, pair, paired
from ombus_streams.memory.session import Session, chain
from ombus_streams.memory.tree import leaf_at

from tests.memory.model.compare import entries_of
from tests.support.engine import KEY, Driver, diligent, worker
from tests.support.sessions import chat, compaction, custom, fact, observations
from tests.support.sessions import settings as said

NOT_SHOWN = re.compile(r"^\[not shown, .*\]$", re.MULTILINE)


class Hole(AssertionError):
    """A source that is in no block and in no omission."""


def check_every_position(driver: Driver, keep: int | None = None, cap: float | None = None) -> int:
    """Read the context at every entry of every leaf; return how many sources were looked for.

    Raises ``Hole``, naming position and source.
    """
    n_sources = 0
    positions = {
        entry.id
        for entry in entries_of(driver.log.records, KEY)
        if not entry.side and entry.message is not None
    }
    for tip in sorted(positions):
        session = driver.session()
        place = session.place_of(tip)
        assert place is not None
        if place.conflict:
            continue
        leaf = leaf_at(session, place)
        sources = sources_of(session, leaf)
        blocks = reading.context(session, leaf, keep, cap)
        check_marks(f"at {tip}", [source.id for source in sources], [b.content for b in blocks])
        n_sources += len(sources)
    return n_sources


def check_marks(where: str, ids: list[str], texts: list[str]) -> None:
    """Raise ``Hole`` for a source whose mark is in no text and between the ends of no omission."""
    text = "\n".join(texts)
    named: set[str] = set()
    for line in NOT_SHOWN.findall(text):
        ends = [place for place, name in enumerate(ids) if re.search(rf"\b{name}\b", line)]
        if ends:
            named.update(ids[ends[0] : ends[-1] + 1])
    for name in ids:
        if f"mark-{name}." not in text and name not in named:
            raise Hole(f"{where}: {name} is in no place of {len(text)} characters")


def sources_of(session: Session, leaf: LeafHead) -> list[Entry]:
    entries = (decode(row.value) for _, row in chain(session, leaf.lineage))
    return [entry for entry in entries if is_eligible(entry)]


def a_session(driver: Driver, **thresholds: int) -> None:
    """Let a tree of three leaves be observed, reflected, pruned and compacted."""
    thresholds = {
        "observe": 40,
        "reflect": 10,
        "target": 8,
        "compact": 150,
        "recent": 2,
    } | thresholds
    driver.tell(said("settings", None, **thresholds))  # type: ignore[arg-type]
    parent: str | None = None
    for n in range(18):
        role = ("user", "assistant", "tool")[n % 3]
        driver.tell(chat(f"m{n}", parent, role=role, tokens=15))
        parent = f"m{n}"
    for tip, fork in (("x", "m4"), ("y", "m11")):
        for n in range(5):
            driver.tell(chat(f"{tip}{n}", f"{tip}{n - 1}" if n else fork, tokens=15))
    driver.tell(fact("flush", "y4", "flush.requested"), fact("compact", "y4", "compact.requested"))


@pytest.mark.parametrize(("keep", "cap"), [(None, None), (0, None), (3, 40), (0, 10), (8, 1)])
def test_every_source_is_in_a_block_or_named_at_every_position(
    keep: int | None, cap: float | None
) -> None:
    driver = Driver()
    a_session(driver)

    assert check_every_position(driver, keep, cap) > 200


def test_a_source_is_read_back_when_no_worker_has_run_yet() -> None:
    driver = Driver()
    a_session(driver, observe=100_000)

    assert check_every_position(driver) > 200


def test_a_worker_that_records_nothing_leaves_holes_that_are_found() -> None:
    driver = Driver(worker(lambda request: []))
    a_session(driver)

    with pytest.raises(Hole, match="is in no place"):
        check_every_position(driver)


def test_a_worker_that_forgets_one_source_is_found() -> None:
    driver = Driver(worker(lambda request: diligent(request)[1:]))
    a_session(driver)

    with pytest.raises(Hole, match="is in no place"):
        check_every_position(driver)


def check_every_compaction(driver: Driver) -> int:
    """Rebuild at every compaction from its summary, payload and kept messages alone."""
    n_compactions = 0
    log = entries_of(driver.log.records, KEY)
    for record in log:
        if record.kind != "compaction" or not isinstance(record.data, dict):
            continue
        session = driver.session()
        place = session.place_of(record.parent or "")
        assert place is not None
        leaf = leaf_at(session, place)
        entries = [decode(row.value) for _, row in chain(session, leaf.lineage)]
        rebuilt = rebuild([*entries, record], record.id)
        texts = [*rebuilt.summaries, *(repr(entry.message) for entry in rebuilt.messages)]
        ids = [source.id for source in sources_of(session, leaf)]
        check_marks(f"compaction {record.id}", ids, [*texts, repr(record.data["memory"])])
        n_compactions += 1
    return n_compactions


def test_every_source_is_in_summary_payload_or_kept_messages_of_every_compaction() -> None:
    driver = Driver()
    a_session(driver)

    assert check_every_compaction(driver) > 3


def test_a_compaction_over_a_worker_that_records_nothing_has_a_hole() -> None:
    driver = Driver(worker(lambda request: diligent(request)[:1]))
    a_session(driver)

    with pytest.raises(Hole, match="compaction"):
        check_every_compaction(driver)


# Pairing.

CALLS = st.sampled_from(["c1", "c2", "c3"])
BLOCKS = st.lists(st.tuples(st.sampled_from(["call", "result"]), CALLS), max_size=4)
TURNS = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "tool"]), BLOCKS), min_size=1, max_size=9
)


def transcript(turns: list[tuple[str, list[tuple[str, str]]]]) -> list[Entry]:
    """Return messages with calls and results anywhere: repeated, missing, before their call."""
    entries: list[Entry] = []
    parent = None
    for n, (role, blocks) in enumerate(turns):
        made: list[JsonObject] = [
            {"type": "tool_call", "id": name, "name": "run", "arguments": {}}
            if what == "call"
            else {"type": "tool_result", "toolCallId": name, "name": "run", "result": n}
            for what, name in blocks
        ]
        entries.append(chat(f"m{n}", parent, role=role, tokens=12, blocks=tuple(made)))
        parent = f"m{n}"
    return entries


@settings(max_examples=40)
@given(TURNS, st.data())
def test_no_window_of_any_cut_shows_half_a_pair(
    turns: list[tuple[str, list[tuple[str, str]]]], data: st.DataObject
) -> None:
    entries = transcript(turns)
    driver = Driver()
    driver.append(*entries)
    for n in data.draw(st.sets(st.integers(0, len(turns) - 1), max_size=2)):
        driver.append(fact(f"r{n}", None, "sources.invalidated", ids=[f"m{n}"]))
    covered = data.draw(st.integers(0, len(turns)))
    if covered:
        last = f"m{covered - 1}"
        driver.append(custom("covered", last, observations(covers=last)))
    driver.catch_up()

    for position in range(len(entries)):
        for keep in (0, 1, 3):
            for cap in (None, 15, 30, 60):
                session = driver.session()
                place = session.place_of(f"m{position}")
                assert place is not None
                window = recent.recent(session, leaf_at(session, place), keep, cap)
                check_pairs(window.entries)


def check_pairs(entries: tuple[Entry, ...]) -> None:
    """Assert that each result follows its call; each call has its result or says it has none."""
    pairs = pair(entries)
    assert not pairs.orphans
    for index, number in pairs.open_calls:
        message = entries[index].message
        assert message is not None
        after = message.content[number + 1] if number + 1 < len(message.content) else {}
        assert after.get("text") == NO_RESULT_YET


@settings(max_examples=40)
@given(TURNS)
def test_no_compaction_of_any_cut_leaves_half_a_pair(
    turns: list[tuple[str, list[tuple[str, str]]]],
) -> None:
    entries = transcript(turns)
    whole = pair(entries)
    for covered in range(len(entries)):
        driver = Driver()
        driver.append(said("settings", None, compact=1), *entries)
        item = observations({"id": "0" * 12, "content": "fact", "timestamp": "", "relevance": "low",
            "sourceEntryIds": ["m0"], "tokenCount": 1}, covers=f"m{covered}")  # fmt: skip
        driver.append(custom("covered", f"m{covered}", item))
        driver.catch_up()
        for keep in range(3):
            driver.append(
                fact(
                    f"c{keep}", f"m{len(entries) - 1}", "compact.requested", keepRecentEntries=keep
                )
            )
            driver.catch_up()
            session = driver.session()
            leaf = session.leaf(1)
            run = compactor.decide(session, leaf)
            driver.append(
                fact(f"f{keep}", f"m{len(entries) - 1}", "compact.failed", requestId=f"c{keep}")
            )
            driver.catch_up()
            if not isinstance(run, RunCompactor):
                continue
            data = compactor.compact(session, leaf, run).data
            record = compaction("om:compactor:1", entries[-1].id, data)
            messages = rebuild([*entries, record], record.id).messages
            kept = {entry.id for entry in messages}
            pairs = pair(messages)
            for index, number in (*pairs.orphans, *pairs.open_calls):
                origin = next(n for n, e in enumerate(entries) if e.id == messages[index].id)
                alone = (origin, number) in whole.orphans | whole.open_calls
                assert alone, f"{messages[index].id} lost its other half, kept {sorted(kept)}"
            check_pairs_closed(paired(messages))


def check_pairs_closed(messages: tuple[Entry, ...]) -> None:
    pairs = pair(messages)
    assert not pairs.orphans
    assert not pairs.open_calls
