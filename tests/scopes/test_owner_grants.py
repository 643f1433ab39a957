"""The fold of grants: per owner, in log order, and nothing but what the owner issued."""

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.grants import MAX_PRINCIPALS
from ombus_streams.memory.owner_grants import MAX_OPENINGS, OwnerGrants, evolve
from ombus_streams.runtime.grant_fold import PartitionGrants, fold_all

from tests.scopes.fleet import Owner, grant_entry, put
from tests.support.engine import ManualClock, MemoryLog

X = "x"


def entry(data: JsonObject) -> Entry:
    return Entry(id="g", session_id="s", kind="custom", data=data)


def owned(owner: str = "alice") -> JsonObject:
    return {"type": "om.session.owner", "ownerId": owner, "issuedBy": owner}


def granted(*principals: str, opening: str | None = "o1", by: str = "alice") -> JsonObject:
    found: JsonObject = {
        "type": "om.scope.granted",
        "scopeId": X,
        "principalIds": list(principals),
        "issuedBy": by,
    }
    return found if opening is None else {**found, "openingEntryId": opening}


def revoked(*principals: str, by: str = "alice") -> JsonObject:
    return {
        "type": "om.scope.revoked",
        "scopeId": X,
        "principalIds": list(principals),
        "issuedBy": by,
    }


def fold(*records: JsonObject) -> OwnerGrants | None:
    held: OwnerGrants | None = None
    for record in records:
        held = evolve(held, entry(record))
    return held


def holders(held: OwnerGrants | None, opening: str = "o1") -> tuple[str, ...]:
    assert held is not None
    scope = held.by_scope_id.get(X)
    return scope.granted(opening) if scope is not None else ()


def test_the_first_owner_stays_and_only_what_it_issues_counts() -> None:
    held = fold(owned("alice"), owned("mallory"), granted("p"), granted("m", by="mallory"))
    assert held is not None
    assert held.owner_id == "alice"
    assert holders(held) == ("p",)
    assert holders(fold(owned(), granted("p"), revoked("p", by="mallory"))) == ("p",)


def test_before_an_owner_is_known_nothing_is_granted() -> None:
    assert fold(granted("p")) is None
    assert holders(fold(granted("p"), owned())) == ()


def test_a_grant_holds_for_the_opening_it_names_and_an_import_names_none() -> None:
    held = fold(owned(), granted("p", opening="o1"), granted("q", opening=None))
    assert holders(held, "o1") == ("p",)
    assert holders(held, "o2") == ()
    both = fold(owned(), granted("p", opening="o1"), granted("p", opening="o2"))
    assert holders(both, "o1") == holders(both, "o2") == ("p",)


def test_openings_of_a_principal_are_bounded_and_the_newest_stay() -> None:
    names = [f"o{n}" for n in range(MAX_OPENINGS + 1)]
    held = fold(owned(), *(granted("p", opening=name) for name in names))
    assert holders(held, "o0") == ()
    assert all(holders(held, name) == ("p",) for name in names[1:])


def test_a_revocation_takes_every_opening_and_the_principal_is_kept_as_revoked() -> None:
    held = fold(owned(), granted("p"), granted("p", opening="o2"), revoked("p"))
    assert holders(held) == holders(held, "o2") == ()
    assert held is not None
    assert held.by_scope_id[X].openings_by_principal == {"p": ()}


def test_who_is_granted_again_stands_last() -> None:
    assert holders(fold(owned(), granted("p", "q"), revoked("p"), granted("p"))) == ("q", "p")


def test_beyond_the_cap_the_rest_is_ignored_in_log_order() -> None:
    first = [f"p{n}" for n in range(MAX_PRINCIPALS)]
    full = fold(owned(), granted(*first), granted("late"))
    assert len(holders(full)) == MAX_PRINCIPALS
    assert "late" not in holders(full)
    freed = fold(owned(), granted(*first), revoked("p0"), granted("late"))
    assert "late" in holders(freed)


def test_what_changes_nothing_returns_the_same_object() -> None:
    held = fold(owned(), granted("p"))
    malformed: JsonObject = {"type": "om.scope.granted"}
    for record in (granted("p"), revoked("q"), granted("q", by="eve"), malformed):
        assert evolve(held, entry(record)) is held


def partition(log: MemoryLog) -> PartitionGrants:
    found = PartitionGrants()
    fold_all(found, log.read(0, 0, 10_000))
    return found


def test_a_grant_that_is_sent_again_after_a_revocation_brings_nothing_back() -> None:
    log = MemoryLog(ManualClock())
    owner = Owner(log, "s")
    owner.take()
    late = grant_entry(owner, granted("p"), "once")
    put(log, late)
    owner.revoke("p", scope_id=X)
    put(log, late)
    assert holders(partition(log).by_owner[b"acme/s"]) == ()


def test_a_key_that_contradicts_its_body_grants_nothing() -> None:
    log = MemoryLog(ManualClock())
    owner = Owner(log, "s")
    owner.take()
    forged = msgspec.json.encode(grant_entry(owner, granted("p")))
    log.put(b"other/s", forged)
    log.put(b"acme/s", b"no json")
    log.put(None, None)
    found = partition(log)
    assert found.n_ignored == 3
    assert set(found.by_owner) == {b"acme/s"}
    assert found.next_offset == 4


def test_changes_since_a_place_are_known_and_another_history_is_not() -> None:
    log = MemoryLog(ManualClock())
    Owner(log, "a").take()
    before = partition(log)
    Owner(log, "b").take()
    Owner(log, "a").grant("p")
    now = partition(log)
    assert now.changed_since(before.next_offset, before.digest) == frozenset((b"acme/a", b"acme/b"))
    assert now.changed_since(now.next_offset, now.digest) == frozenset()
    assert now.changed_since(before.next_offset, "another digest") is None
    assert before.changed_since(now.next_offset, now.digest) is None
