"""S1."""

import msgspec
import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.branches import branch, branches, rebuild
from ombus_streams.memory.errors import DuplicateEntry, MissingParent, ParentCycle, UnknownLeaf

from tests.support.ledgers import entry, message

FORK = [
    message("a", "root"),
    message("b", "left", parent="a"),
    message("c", "right", parent="a"),
]


def compaction(entry_id: str, parent: str, **data: str | list[str]) -> Entry:
    body: JsonObject = {key: list(v) if isinstance(v, list) else v for key, v in data.items()}
    return msgspec.structs.replace(
        entry(entry_id, "compaction", body), parent_id=parent, summary="SUM"
    )


def test_a_branch_is_the_chain_of_its_leaf_root_first() -> None:
    assert [one.id for one in branch(FORK, "b")] == ["a", "b"]
    assert [one.id for one in branch(FORK)] == ["a", "c"]
    assert branch([]) == branch(FORK, "") == ()


def test_each_entry_without_a_child_ends_a_branch() -> None:
    assert [one.leaf_id for one in branches(FORK)] == ["b", "c"]


def test_a_broken_chain_is_named() -> None:
    with pytest.raises(UnknownLeaf):
        branch(FORK, "zz")
    with pytest.raises(MissingParent):
        branch([message("a", "x", parent="gone")])
    with pytest.raises(DuplicateEntry):
        branch([*FORK, message("a", "again")], "b")
    with pytest.raises(ParentCycle):
        branch([message("a", "x", parent="b"), message("b", "x", parent="a")])


def test_a_compaction_leaves_what_is_after_it_and_what_it_keeps() -> None:
    entries = [
        message("a", "1"),
        message("b", "2", parent="a"),
        message("c", "3", parent="b"),
        compaction("k", "c", throughEntryId="b", keepEntryIds=["a"]),
        message("d", "4", parent="k"),
    ]

    rebuilt = rebuild(entries)

    assert [one.id for one in rebuilt.messages] == ["a", "c", "d"]
    assert rebuilt.summaries == ("SUM",)
    assert rebuilt.branch == tuple(entries)


def test_a_boundary_that_is_not_on_the_branch_leaves_only_what_is_kept() -> None:
    entries = [*FORK[:2], compaction("k", "b", throughEntryId="gone", keepEntryIds=["b"])]

    assert [one.id for one in rebuild(entries).messages] == ["b"]


def test_a_malformed_compaction_is_passed_over() -> None:
    entries = [
        *FORK[:2],
        compaction("k1", "b", throughEntryId="a"),
        compaction("k2", "k1", keepEntryIds="b"),
    ]

    assert [one.id for one in rebuild(entries).messages] == ["b"]
    assert rebuild([]).leaf_id is None
