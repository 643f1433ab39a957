"""S18: commands on scopes. A revoke asks for the reference's rule (design.md section 12, row 8)."""

import builtins
import json
import re
from collections.abc import Callable

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory import grants, ledger, scopes
from ombus_streams.memory import scope_controller as controller

from tests.conformance.cases import Result, UnknownOp, entries_of, failure, secrets_of


def run(case: JsonObject) -> Result:
    branch = _Branch(entries_of(case["entries"]), secrets_of(case.get("secrets")))
    match case["op"]:
        case "controller":
            calls = case["calls"]
            assert isinstance(calls, list)
            return {"results": [_called(branch, call) for call in calls], "appended": branch.data}
        case "with_scope":
            result = _outcome(lambda: _within(branch, case["scope"], str(case["callback"])))
            return {"result": result, "appended": branch.data}
        case op:
            raise UnknownOp(op)


class _Branch:
    """A branch that grows; ``data`` lists what the case has appended."""

    def __init__(self, entries: list[Entry], secrets: list[str]) -> None:
        self.entries, self.secrets = entries, secrets
        self.data: list[JsonValue] = []

    def append(self, data: JsonObject) -> None:
        self.data.append(data)
        entry_id = f"appended{len(self.data)}"
        self.entries.append(Entry(id=entry_id, session_id="s1", kind="custom", data=data))


def _called(branch: _Branch, call: JsonValue) -> JsonValue:
    assert isinstance(call, list)
    method, arguments = str(call[0]), [*call[1:], None, None]
    return _outcome(lambda: _call(branch, method, arguments[0], arguments[1]))


def _call(branch: _Branch, method: str, first: JsonValue, second: JsonValue) -> JsonValue:
    scope_map, held = scopes.fold(branch.entries), ledger.fold(branch.entries)
    granted = grants.fold(branch.entries)
    record: JsonObject | None
    match method:
        case "leaf":
            return scope_map.leaf
        case "has":
            return controller.has_scope(scope_map, first)
        case "open":
            record = controller.open_scope(scope_map, first, branch.secrets)
        case "close":
            record = controller.close_scope(scope_map, first)
        case "enter":
            record = controller.enter_scope(scope_map, first)
        case "leave":
            record = controller.leave_scope(scope_map)
        case "bind":
            record = controller.bind(scope_map, held, first, second)
        case "unbind":
            record = controller.unbind(scope_map, held, first, second)
        case "grant":
            record = controller.grant(scope_map, granted, first, second)
        case "revoke":
            record = controller.revoke(scope_map, granted, first, second, "open_and_changed")
        case _:
            raise UnknownOp(method)
    if record is not None:
        branch.append(record)
    return None


def _within(branch: _Branch, scope: JsonValue, callback: str) -> JsonValue:
    with controller.work_scope(lambda: branch.entries, branch.append, scope, branch.secrets):
        returns = re.fullmatch(r"returns (.*)", callback)
        if returns is None:
            raise _thrown(callback)
        value: JsonValue = json.loads(returns[1])
        return value


def _thrown(callback: str) -> Exception:
    named = re.search(r"(\w+)\('(.*)'\)", callback)
    classes = {"TypeError": builtins.TypeError, "RangeError": builtins.ValueError}
    if named is None:
        return RuntimeError(callback)
    return classes.get(named[1], RuntimeError)(named[2])


def _outcome(call: Callable[[], JsonValue]) -> JsonObject:
    try:
        return {"ok": call()}
    except UnknownOp:
        raise
    except Exception as raised:  # every outcome of a call under test is a result
        return failure(raised)
