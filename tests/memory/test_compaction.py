"""S13, S24 and design.md sections 9 and 12 (rows 1, 4, 22)."""

import msgspec
import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import FoldedMemory, compaction_of, folded_of
from ombus_streams.memory.compaction import LATEST, SEED, Refused, Strategy, compact
from ombus_streams.memory.errors import SizeExceeded
from ombus_streams.memory.summary import Compacted

from tests.memory.test_pairing import call, result
from tests.support.ledgers import (
    dropped,
    entry,
    memory,
    message,
    observation,
    observed,
    reflected,
    reflection,
)


def talk(n: int, start: int = 1) -> list[Entry]:
    return [message(f"e{i}", f"message {i}") for i in range(start, start + n)]


def done(
    entries: list[Entry], keep: float | None = None, secrets: tuple[str, ...] = ()
) -> Compacted:
    compacted = compact(entries, keep, secrets=secrets)
    assert isinstance(compacted, Compacted)
    return compacted


def appended(compacted: Compacted, entry_id: str = "k") -> Entry:
    return msgspec.structs.replace(
        entry(entry_id, "compaction", compacted.data), summary=compacted.summary
    )


def payload(compacted: Compacted) -> FoldedMemory:
    folded = folded_of(appended(compacted))
    assert folded is not None
    return folded


def test_everything_after_the_cut_is_kept_and_the_cut_passes_neither_coverage_nor_window() -> None:
    entries = [*talk(6), observed("c1", observation(1), coversUpToId="e3"), *talk(4, 7)]

    assert done(entries, 2).data["throughEntryId"] == "e3"
    assert done([*entries, observed("c2", coversUpToId="e10")], 2).data["throughEntryId"] == "e8"


def test_memory_is_all_that_is_active_wherever_it_was_recorded() -> None:
    entries = [*talk(4), observed("c1", observation(1), coversUpToId="e4")]

    folded = payload(done(entries, 2))

    assert [item.id for item in folded.observations] == [memory(1)]
    assert compact(entries, 2, strategy=LATEST).__class__ is Compacted
    reference = compact(entries, 2, strategy=LATEST)
    assert isinstance(reference, Compacted)
    assert payload(reference).observations == ()


def test_only_what_pairing_needs_is_listed_from_before_the_cut() -> None:
    entries = [
        message("e1", "run it"),
        message("e2", call("x"), role="assistant"),
        message("e3", "meanwhile"),
        message("e4", result("x"), role="tool"),
        observed("c1", observation(1), coversUpToId="e4"),
    ]

    assert done(entries, 1).data["keepEntryIds"] == ["e2"]
    assert done(entries, 2).data["keepEntryIds"] == ["e2"]
    assert done(entries, 3).data["keepEntryIds"] == []


def test_a_side_record_is_no_place_to_cut() -> None:
    side = msgspec.structs.replace(
        observed("c1", observation(1), coversUpToId="e4"), side=True, parent_id="e4"
    )
    entries = [*talk(4), side, *talk(2, 5)]

    assert done([*entries, observed("c2", coversUpToId="e6")], 2).data["throughEntryId"] == "e4"


def test_a_compaction_names_its_base_and_the_last_record_of_each_kind() -> None:
    entries = [
        *talk(4),
        observed("c1", observation(1), observation(2), coversUpToId="e4"),
        reflected("r1", reflection(9, supports=(1,))),
        dropped("d1", 2),
    ]
    first = appended(done(entries, 1), "k1")
    second = done(
        [*entries, first, *talk(3, 5), observed("c2", observation(3), coversUpToId="e7")], 1
    )

    marks = compaction_of(first)
    assert marks is not None
    assert marks.folded_through is not None
    assert marks.base is None
    assert (marks.folded_through.observations, marks.folded_through.drops) == ("c1", "d1")
    assert second.data["base"] == "k1"
    assert second.data["foldedThrough"] == {
        "observations": "c2",
        "reflections": "r1",
        "drops": "d1",
    }


def test_the_payload_lists_only_dropped_ids_its_items_refer_to() -> None:
    entries = [
        *talk(3),
        observed("c1", observation(1), observation(2), observation(3), coversUpToId="e3"),
        reflected("r1", reflection(9, supports=(1, 3))),
        dropped("d1", 1, 2, reason="pruned"),
    ]

    folded = payload(done(entries, 1))

    assert folded.dropped_observation_ids == (memory(1),)
    assert [item.id for item in folded.reflections] == [memory(9)]


def test_an_empty_ledger_and_a_cut_that_does_not_move_are_refused() -> None:
    entries = [*talk(4), observed("c1", observation(1), coversUpToId="e4")]
    again = [*entries, appended(done(entries, 2))]

    assert compact(talk(9), 2) == Refused(reason="nothing_folded")
    assert compact(again, 2) == Refused(reason="not_forward")
    assert isinstance(compact(talk(9), 2, strategy=SEED), Compacted)


def test_nothing_invalidated_enters_a_payload() -> None:
    entries = [
        *talk(4),
        observed("c1", observation(1), observation(2, sources=("e2",)), coversUpToId="e4"),
        reflected("r1", reflection(9, supports=(1,)), reflection(8, supports=(2,))),
    ]

    compacted = compact(entries, 1, invalidated_ids=frozenset({"e1"}))

    assert isinstance(compacted, Compacted)
    assert [item.id for item in payload(compacted).observations] == [memory(2)]
    assert [item.id for item in payload(compacted).reflections] == [memory(8)]


@pytest.mark.parametrize("secret", ['"', "observations", "\\", "om.folded"])
def test_a_secret_of_json_syntax_is_redacted_and_the_payload_stays_readable(secret: str) -> None:
    said = f"quotes {secret} here"
    entries = [*talk(3), observed("c1", observation(1, said), coversUpToId="e3")]

    folded = payload(done(entries, 1, (secret,)))

    assert folded.observations[0].content == "quotes [REDACTED] here"
    for level in (SEED, LATEST):
        compacted = compact(entries, 0, secrets=[secret], strategy=level)
        assert isinstance(compacted, Compacted)
        assert secret not in compacted.summary


def test_reflections_alone_over_the_cap_are_an_error_with_its_size() -> None:
    entries = [
        *talk(2),
        observed("c1", coversUpToId="e2"),
        reflected("r1", reflection(9, "x" * 2000)),
    ]

    with pytest.raises(SizeExceeded):
        compact(entries, 1, strategy=Strategy(max_bytes=1000))


def test_a_scoped_compaction_folds_all_and_shows_what_the_leaf_sees() -> None:
    opened: JsonObject = {"type": "om.scope.opened", "id": "p"}
    entries = [*talk(2), observed("c1", observation(1), coversUpToId="e2"), entry("s", data=opened)]

    compacted = done(entries, 1)

    assert len(payload(compacted).observations) == 1
    assert memory(1) not in compacted.summary
    assert "## Scope Outline" in compacted.summary
