"""S19. ``entries: "store"`` reads ``stores``, and fails for the sessions in ``throws``."""

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import observation_json, reflection_json
from ombus_schemas.settings import SharedScope
from ombus_streams.memory import grants, scopes, shared
from ombus_streams.memory.context import blocks
from ombus_streams.memory.recall import NotRecalled, Revoked, recall, recall_json

from tests.conformance.areas.context_blocks import blocks_json, reference_options
from tests.conformance.cases import Result, UnknownOp, entries_of, ids, secrets_of, strings_of


def run(case: JsonObject) -> Result:
    local = entries_of(case["local"])
    decisions, resolved = _resolve(case, scopes.fold(local))
    match case["op"]:
        case "resolve":
            return {
                "events": [_decision_json(decision) for decision in decisions],
                "resolved": [_resolved_json(scope) for scope in resolved],
            }
        case "merge":
            merged = shared.merge(resolved)
            return {
                "observations": [observation_json(item) for item in merged.observations],
                "reflections": [reflection_json(item) for item in merged.reflections],
                "droppedObservationIds": list(merged.dropped_ids),
                "binds": [[key, list(refs)] for key, refs in merged.refs_by_scope_id.items()],
                "entries": ids(merged.entries),
            }
        case "shared_recall":
            said = case.get("options")
            invalidated = said.get("invalidatedIds") if isinstance(said, dict) else None
            recalled = recall(
                local,
                str(case["id"]),
                secrets_of(case.get("secrets")),
                frozenset(strings_of(invalidated)),
                shared.merge(resolved),
            )
            answer = recall_json(recalled)
            if isinstance(recalled, NotRecalled | Revoked):
                del answer["text"]
            else:
                answer["sourceEntries"] = ids(recalled.source_entries)
            return answer
        case "shared_context":
            options = reference_options(case.get("options"))
            return blocks_json(blocks(local, **options, shared=shared.merge(resolved)))
        case op:
            raise UnknownOp(op)


def _resolve(
    case: JsonObject, scope_map: scopes.ScopeMap
) -> tuple[tuple[shared.AccessDecision, ...], tuple[shared.ResolvedScope, ...]]:
    declared, stores = case["scopes"], case["stores"]
    assert isinstance(declared, dict)
    assert isinstance(stores, dict)
    failing = frozenset(strings_of(case.get("throws")))
    branches = {
        session_id: shared.branch_of(entries_of(entries))
        for session_id, entries in stores.items()
        if session_id not in failing and isinstance(entries, list)
    }
    scope_list: list[SharedScope] = []
    supplies: dict[str, shared.Supply] = {}
    for scope_id in _in_key_order(declared):
        said = declared[scope_id]
        config = said if isinstance(said, dict) else {}
        owner_id = config.get("ownerSessionId")
        scope = SharedScope(
            scope_id=scope_id,
            owner_session_id=owner_id if isinstance(owner_id, str) else "",
            is_readable=config.get("entries") == "store",
        )
        owner = branches.get(scope.owner_session_id)
        granted = grants.fold(owner.entries).get(scope_id, ()) if owner is not None else None
        scope_list.append(scope)
        supplies[scope_id] = shared.Supply(branches=branches, granted=granted)
    return shared.resolve(scope_list, str(case["principalId"]), scope_map, supplies)


def _in_key_order(value: JsonObject) -> list[str]:
    """Return the keys as JavaScript walks them: integer-like ones first."""
    indices = [key for key in value if key.isdecimal() and key == str(int(key))]
    return sorted(indices, key=int) + [key for key in value if key not in indices]


def _decision_json(decision: shared.AccessDecision) -> JsonObject:
    value: JsonObject = {
        "scopeId": decision.scope_id,
        "ownerSessionId": decision.owner_session_id,
        "principalId": decision.principal_id,
        "granted": decision.granted,
        "branches": decision.n_branches,
        "observations": decision.n_observations,
        "reflections": decision.n_reflections,
    }
    return value if decision.reason is None else value | {"reason": decision.reason}


def _resolved_json(scope: shared.ResolvedScope) -> JsonValue:
    return {
        "scopeId": scope.scope_id,
        "ownerSessionId": scope.owner_session_id,
        "observations": [observation_json(item) for item in scope.ledger.observations],
        "reflections": [reflection_json(item) for item in scope.ledger.reflections],
        "droppedObservationIds": list(scope.ledger.dropped_ids),
        "refs": list(scope.refs),
        "branches": list(scope.branch_ids),
        "entries": ids(scope.entries),
    }
