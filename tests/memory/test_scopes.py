"""S18: the scope map and the grants."""

from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory import grants, scopes
from ombus_streams.memory.scopes import EMPTY, MAX_BINDS, MAX_SCOPES, ScopeMap

from tests.support.ledgers import entry, json_values


def opened(scope_id: str, parent_id: str | None = None, **texts: str) -> JsonObject:
    parent: JsonObject = {} if parent_id is None else {"parentId": parent_id}
    return {"type": "om.scope.opened", "id": scope_id, **parent, **texts}


def on(kind: str, scope_id: str, **fields: JsonValue) -> JsonObject:
    return {"type": f"om.scope.{kind}", "scopeId": scope_id, **fields}


def folded(*records: JsonValue) -> ScopeMap:
    return scopes.fold(entry(f"r{i}", data=record) for i, record in enumerate(records))


def granted(*records: JsonValue) -> grants.Grants:
    return grants.fold(entry(f"r{i}", data=record) for i, record in enumerate(records))


def ref(n: int) -> str:
    return f"om:{n:012x}"


def scope_entries() -> st.SearchStrategy[list[Entry]]:
    kinds = st.sampled_from(
        ["opened", "closed", "entered", "left", "bound", "unbound", "granted", "revoked"]
    )
    ids = st.sampled_from(["session", "a", "b", "c", "..", ""]) | json_values()
    bodies = st.fixed_dictionaries(
        {"type": kinds.map("om.scope.{}".format)},
        optional={
            "id": ids,
            "scopeId": ids,
            "parentId": ids,
            "label": json_values(),
            "refs": st.lists(st.integers(0, 3).map(ref) | json_values(), max_size=3),
            "principalIds": st.lists(st.sampled_from("xyz") | json_values(), max_size=3),
        },
    )
    return st.lists(st.builds(entry, st.just("r"), data=bodies | json_values()), max_size=12)


@given(scope_entries())
def test_the_scope_fold_is_total_and_stands_on_open_known_scopes(entries: list[Entry]) -> None:
    scope_map = scopes.fold(entries)

    assert scope_map.stack[0] == "session"
    assert all(scopes.is_open(scope_map, scope_id) for scope_id in scope_map.stack)
    assert all(scopes.lineage(scope_map, scope_id) for scope_id in scope_map.scopes)
    assert set(scope_map.refs_by_scope_id) <= set(scope_map.scopes)


@given(scope_entries())
def test_the_grant_fold_is_total_and_keeps_no_empty_list(entries: list[Entry]) -> None:
    assert all(grants.fold(entries).values())


def test_a_record_that_changes_nothing_gives_the_same_map() -> None:
    assert scopes.evolve(EMPTY, entry("r", data=on("closed", "nobody"))) is EMPTY


def test_entering_replaces_the_stack_by_the_whole_lineage() -> None:
    tree = (opened("p"), opened("q", "p"), opened("z"))

    assert folded(*tree, on("entered", "q")).stack == ("session", "p", "q")
    assert folded(*tree, on("entered", "q"), on("entered", "z")).stack == ("session", "z")
    assert folded(*tree, on("entered", "q"), on("entered", "session")).stack == ("session",)


def test_closing_a_scope_on_the_stack_cuts_the_stack_before_it() -> None:
    scope_map = folded(opened("p"), opened("q", "p"), on("entered", "q"), on("closed", "p"))

    assert scope_map.stack == ("session",)
    assert scope_map.scopes["q"].status == "open"


def test_an_id_is_opened_once_and_a_null_parent_is_no_absent_one() -> None:
    scope_map = folded(
        opened("p", label="first"),
        on("closed", "p"),
        opened("p", label="second"),
        {"type": "om.scope.opened", "id": "n", "parentId": None},
    )

    assert scope_map.scopes["p"].label == "first"
    assert "n" not in scope_map.scopes


def test_the_caps_are_met_exactly_and_not_passed() -> None:
    full = folded(*(opened(f"s{i}") for i in range(MAX_SCOPES + 1)))
    chain = folded(opened("d1"), *(opened(f"d{i}", f"d{i - 1}") for i in range(2, 10)))
    refs: list[JsonValue] = [ref(i) for i in range(MAX_BINDS)]
    bound = folded(
        opened("p"),
        on("bound", "p", refs=refs),
        on("bound", "p", refs=[ref(0)]),
        on("bound", "p", refs=[ref(0), ref(MAX_BINDS)]),
    )

    assert len(full.scopes) == MAX_SCOPES + 1
    assert list(chain.scopes)[-1] == "d8"
    assert len(bound.refs_by_scope_id["p"]) == MAX_BINDS


def test_rebinding_moves_to_the_end_and_an_emptied_list_is_gone() -> None:
    both = (opened("p"), on("bound", "p", refs=[ref(1), ref(2)]), on("unbound", "p", refs=[ref(1)]))

    assert folded(*both, on("bound", "p", refs=[ref(1)])).refs_by_scope_id["p"] == (ref(2), ref(1))
    assert folded(*both, on("unbound", "p", refs=[ref(2)])).refs_by_scope_id == {}


def test_grants_accumulate_without_a_scope_and_stop_at_the_cap_in_order() -> None:
    first: list[JsonValue] = [f"a{i}" for i in range(1000)]
    more: list[JsonValue] = [f"b{i}" for i in range(100)]
    held = granted(on("granted", "p", principalIds=first), on("granted", "p", principalIds=more))

    assert len(held["p"]) == grants.MAX_PRINCIPALS
    assert held["p"][-1] == "b23"


def test_revoking_takes_one_and_the_last_one_takes_the_scope() -> None:
    two = on("granted", "p", principalIds=["x", "y"])

    assert granted(two, on("revoked", "p", principalIds=["x", "q"])) == {"p": ("y",)}
    assert granted(two, on("revoked", "p", principalIds=["x", "y"])) == {}
    assert granted(two, on("revoked", "p", principalIds=["x", " y"])) == {"p": ("x", "y")}
