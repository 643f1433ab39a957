"""S18: commands on scopes, and design.md section 12, row 8."""

import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory import grants, ledger, scope_controller, scopes
from ombus_streams.memory.scope_controller import ScopeLimitExceeded, ScopeRefused

from tests.memory.test_scopes import folded, on, opened, ref
from tests.support.ledgers import entry, observation, observed


def refused(code: str, scope_map: scopes.ScopeMap, scope: JsonValue) -> bool:
    with pytest.raises(ScopeRefused) as caught:
        scope_controller.open_scope(scope_map, scope)
    return caught.value.code == code


def test_opening_is_refused_for_what_the_fold_would_ignore() -> None:
    scope_map = folded(opened("p"), opened("q"), on("closed", "q"))

    assert refused("reserved", scope_map, {"id": "session"})
    assert refused("exists", scope_map, {"id": "q"})
    assert refused("not_open", scope_map, {"id": "n", "parentId": "q"})
    with pytest.raises(TypeError):
        scope_controller.open_scope(scope_map, {"id": "n", "parentId": None})
    with pytest.raises(ScopeLimitExceeded):
        scope_controller.open_scope(scope_map, {"id": "n", "label": "x" * 513})


def test_redaction_changes_kind_and_label_and_may_pass_the_cap() -> None:
    record = scope_controller.open_scope(
        scopes.EMPTY, {"id": "key", "label": "a key", "kind": "key"}, ["key"]
    )

    assert record == {
        "type": "om.scope.opened",
        "id": "key",
        "kind": "[REDACTED]",
        "label": "a [REDACTED]",
    }
    with pytest.raises(ScopeLimitExceeded):
        scope_controller.open_scope(scopes.EMPTY, {"id": "p", "label": "k" * 100}, ["k"])


def test_only_new_references_are_written_once_and_in_order() -> None:
    held = ledger.fold([observed("c", observation(1), observation(2))])
    scope_map = folded(opened("p"), on("bound", "p", refs=[ref(1)]), on("closed", "p"))

    record = scope_controller.bind(scope_map, held, "p", [ref(2), ref(1), ref(2)])

    assert record == {"type": "om.scope.bound", "scopeId": "p", "refs": [ref(2)]}
    assert scope_controller.bind(scope_map, held, "p", [ref(1)]) is None
    with pytest.raises(ScopeRefused, match="not recorded"):
        scope_controller.bind(scope_map, held, "p", [ref(3)])


def test_a_closed_scope_cannot_be_granted_and_can_be_revoked() -> None:
    scope_map = folded(opened("p"), on("closed", "p"))
    revocation: JsonObject = {
        "type": "om.scope.revoked",
        "scopeId": "p",
        "principalIds": ["s2"],
    }

    with pytest.raises(ScopeRefused):
        scope_controller.grant(scope_map, {}, "p", ["s2"])
    assert scope_controller.revoke(scope_map, {}, "p", ["s2"]) == revocation
    with pytest.raises(ScopeRefused):
        scope_controller.revoke(scope_map, {}, "p", ["s2"], "open_and_changed")


def test_a_revoke_is_written_even_where_it_seems_to_change_nothing() -> None:
    scope_map = folded(opened("p"))

    assert scope_controller.revoke(scope_map, {}, "p", ["s2"]) is not None
    assert scope_controller.revoke(scope_map, {}, "p", ["s2"], "open_and_changed") is None


def test_the_cap_of_principals_is_met_exactly() -> None:
    held = {"p": tuple(f"s{i}" for i in range(grants.MAX_PRINCIPALS - 1))}
    scope_map = folded(opened("p"))

    assert scope_controller.grant(scope_map, held, "p", ["x", "x"]) is not None
    with pytest.raises(ScopeLimitExceeded):
        scope_controller.grant(scope_map, held, "p", ["x", "y"])


def test_a_work_scope_is_left_once_also_when_its_body_fails() -> None:
    entries: list[Entry] = []

    def append(data: JsonObject) -> None:
        entries.append(entry(f"a{len(entries)}", data=data))

    def failing() -> None:
        with scope_controller.work_scope(lambda: entries, append, {"id": "p"}):
            raise LookupError

    with pytest.raises(LookupError):
        failing()
    kinds = [item.data_type for item in entries]
    assert kinds == ["om.scope.opened", "om.scope.entered", "om.scope.left"]


@pytest.mark.parametrize("scope", [None, "p", ["p"], {}, {"id": "bad id"}])
def test_a_work_scope_that_is_none_is_a_type_error_and_runs_nothing(scope: JsonValue) -> None:
    entries: list[JsonObject] = []

    with (
        pytest.raises(TypeError),
        scope_controller.work_scope(lambda: [], entries.append, scope),
    ):
        pytest.fail("the body ran")

    assert entries == []
