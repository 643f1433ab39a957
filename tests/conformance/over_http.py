"""The scope and shared-scope vectors over HTTP: ``python -m tests.conformance.over_http FOLDER``.

Each case gets a session of its own on a gateway in this process. Its entries are put on the log as
they are, one behind the other: nobody may append memory over HTTP. Its grants go to the grants log,
where alone they count. Then the calls are requests, and what they answer, and what they have
appended, is compared with what is expected.

A refusal is the class of the reference by its code: ``bad_request`` is TypeError, ``scope_limit``
RangeError, ``scope_refused`` Error. ``om.scope.left`` names its scope on our log (design.md section
3), a grant its opening entry and who issued it, and they are compared without. What HTTP cannot ask
has a reason: whole cases in ``why_no_case``, which must differ, else the run fails; single calls
in ``why_not_asked``.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec
from ombus.cli.logs import configure
from ombus.client.errors import BadRequest, Refused, ScopeLimit, ScopeRefused
from ombus_schemas.entries import Entry
from ombus_schemas.ids import is_scope_id
from ombus_schemas.jsontext import JsonObject, JsonValue

from tests.conformance.cases import (
    Case,
    Result,
    UnknownOp,
    differences_of,
    entries_of,
    load,
    number_of,
    secrets_of,
    strings_of,
)
from tests.conformance.over_http_bench import Bench, Seeded, bench_in
from tests.conformance.over_http_shared import (
    blocks_of,
    events_of,
    in_order,
    recalled_of,
    sessions_of,
)

NOT_OVER_HTTP: Final[Mapping[str, str]] = {
    "shared_scopes/context_blocks_invalidated_foreign_source": "the reference shows a reflection "
    "whose support has lost its sources; ours does not (design.md section 10)",
}
"""Cases by area and name; ``why_no_case`` knows others by what they ask."""

Adapter = Callable[[Bench, JsonObject], Awaitable[Result]]


async def controller(bench: Bench, case: JsonObject) -> Result:
    entries = entries_of(case["entries"])
    session = await bench.seeded(entries)
    session.hold(entries)
    if case["op"] == "with_scope":
        result = await _within(session, case["scope"], str(case["callback"]))
        return {"result": result, "appended": session.appended()}
    if case["op"] != "controller":
        raise UnknownOp(case["op"])
    results: list[JsonValue] = []
    appended: list[JsonValue] = []
    for call in _list(case["calls"]):
        held = await session.granted() if _list(call)[0] == "revoke" else {}
        results.append(await _called(session, call))
        appended += _changing(session.appended(), held)
    return {"results": results, "appended": appended}


async def fold(bench: Bench, case: JsonObject) -> Result:
    match case["op"]:
        case "map":
            session = await bench.seeded(entries_of(case["entries"]))
            return _map(await session.get("scopes", binds="true"))
        case "binds_generated":
            refs: list[JsonValue] = [f"om:{i:012x}" for i in range(int(number_of(case["n"])))]
            extra: list[JsonValue] = [*strings_of(case.get("extra"))]
            session = await bench.seeded(
                [
                    _record("1", {"type": "om.scope.opened", "id": "p"}),
                    _record("2", {"type": "om.scope.bound", "scopeId": "p", "refs": refs}),
                    _record("3", {"type": "om.scope.bound", "scopeId": "p", "refs": extra}),
                ]
            )
            return _summary(await session.get("scopes", binds="true"))
        case "scopes_generated":
            session = await bench.seeded(
                [
                    _record(str(i), {"type": "om.scope.opened", "id": f"s{i}"})
                    for i in range(int(number_of(case["n"])))
                ]
            )
            return _summary(await session.get("scopes", binds="true"))
        case "grants":
            granted = await _granted(bench, entries_of(case["entries"]))
            return [[scope_id, named] for scope_id, named in granted.items()]
        case "grants_generated":
            granted = await _granted(
                bench,
                [
                    _record(
                        str(r),
                        {
                            "type": "om.scope.granted",
                            "scopeId": "p",
                            "principalIds": [f"r{r}-{i}" for i in range(int(number_of(n)))],
                        },
                    )
                    for r, n in enumerate(_list(case["counts"]))
                ],
            )
            return [
                [scope_id, len(_list(named)), _list(named)[-1]]
                for scope_id, named in granted.items()
            ]
        case op:
            raise UnknownOp(op)


async def project(bench: Bench, case: JsonObject) -> Result:
    options = case["options"]
    if case["op"] != "project" or not isinstance(options, dict):
        raise UnknownOp(case["op"])
    session = await bench.seeded(entries_of(case["entries"]))
    query = {"from": str(options["from"]), "include": str(options["include"])}
    if options.get("closed") == "include":
        query["closed"] = "include"
    kinds = options.get("kinds")
    named = [each for each in kinds if isinstance(each, str)] if isinstance(kinds, list) else []
    if named:
        query["kinds"] = ",".join(named)
    answer = await session.get("scopes/memory", **query)
    return {
        "observations": [item["id"] for item in _objects(answer["observations"])],
        "reflections": [item["id"] for item in _objects(answer["reflections"])],
        "outline": answer["outline"],
    }


async def shared(bench: Bench, case: JsonObject) -> Result:
    reader = str(case["principalId"])
    for name, entries in sessions_of(case).items():
        await bench.seeded(entries, name)
    for name, said in cast("JsonObject", case["stores"]).items():
        if isinstance(said, list):
            Seeded(bench, name, 0).hold(entries_of(said))
    session = Seeded(bench, reader, 0)
    match case["op"]:
        case "resolve":
            await session.get("context")
            return {"events": events_of((await session.get("scopes/access"))["decisions"])}
        case "shared_context":
            options = case.get("options")
            keep = options.get("keepRecentEntries") if isinstance(options, dict) else None
            asked = {} if keep is None else {"recent": str(keep)}
            return blocks_of((await session.get("context", **asked))["blocks"])
        case "shared_recall":
            answer = await session.get(f"memories/{case['id']}")
            return recalled_of(cast("JsonObject", answer["recalled"]))
        case op:
            return {"notOverHttp": op}


ADAPTERS: dict[str, Adapter] = {
    "scope_controller": controller,
    "scopes_fold": fold,
    "scopes_project": project,
    "shared_scopes": shared,
}
"""By area."""


async def failures_of(cases: list[Case], folder: Path) -> list[str]:
    """Run the cases; return a line for each that does not do what it must."""
    found: list[str] = []
    by_bench: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        # Sessions of a shared scope have the names of their vector: each has its own gateway.
        alone = case.title if case.area == "shared_scopes" else ""
        by_bench.setdefault((alone, *secrets_of(case.input.get("secrets"))), []).append(case)
    for number, ((_, *secrets), same) in enumerate(by_bench.items()):
        async with bench_in(folder / str(number), tuple(secrets)) as bench:
            for whole in same:
                case = asked_of(whole)
                result = await ADAPTERS[case.area](bench, case.input)
                difference = differences_of(case.expected, result)
                reason = why_no_case(whole)
                if difference is not None and reason is None:
                    found.append(f"{case.title}: {difference}")
                if difference is None and reason is not None:
                    found.append(f"{case.title}: passes, but was said not to: {reason}")
    return found


def why_no_case(case: Case) -> str | None:
    """Return why a case is not asked as a whole, if it is not."""
    if case.area == "shared_scopes":
        if case.input["op"] == "merge":
            return "no route returns it: contexts, views and recalls are made of it"
        declared = cast("JsonObject", case.input["scopes"]).values()
        if any(isinstance(said, dict) and said.get("entries") != "store" for said in declared):
            return "nobody brings a way to read the owner: the gateway has its own"
    return NOT_OVER_HTTP.get(case.title)


def asked_of(case: Case) -> Case:
    """Return the case without what HTTP cannot be asked."""
    if case.input["op"] == "resolve":  # what is resolved shows in contexts and recalls
        events = _list(cast("JsonObject", case.expected)["events"])
        return msgspec.structs.replace(case, expected={"events": in_order(events)})
    if "calls" not in case.input:
        return case
    expected = cast("JsonObject", case.expected)
    calls, results = _list(case.input["calls"]), _list(expected["results"])
    kept = [place for place in range(len(calls)) if why_not_asked(calls, place) is None]
    return msgspec.structs.replace(
        case,
        input={**case.input, "calls": [calls[place] for place in kept]},
        expected={**expected, "results": [results[place] for place in kept]},
    )


def why_not_asked(calls: Sequence[JsonValue], place: int) -> str | None:
    """Return why a call of a controller is no request, if it is none."""
    method, first, *_ = [*_list(calls[place]), None]
    if method == "has" and not (isinstance(first, str) and is_scope_id(first)):
        return "whether a scope is there is read from the list, which takes no id"
    if method == "open" and isinstance(first, dict):
        texts = [first[key] for key in ("kind", "label") if key in first]
        if not all(isinstance(text, str) for text in texts):
            return "a label that is no string is no body of the route: 400, its length unseen"
    if method == "revoke" and ["close", first] in calls[:place]:
        return "a closed scope can be revoked (design.md section 12, row 8)"
    return None


def cases_in(folder: Path) -> list[Case]:
    """Return the cases that are asked over HTTP."""
    paths = sorted(path for path in folder.rglob("*.json") if path.stem in ADAPTERS)
    return [case for path in paths for case in load(path)]


def main(arguments: list[str]) -> int:
    """Run the folder named by the only argument; return the exit status."""
    if len(arguments) != 1 or not (folder := Path(arguments[0])).is_dir():
        print("usage: python -m tests.conformance.over_http FOLDER", file=sys.stderr)
        return 2
    configure("error", as_json=False)
    cases = cases_in(folder)
    with tempfile.TemporaryDirectory() as data:
        failures = asyncio.run(failures_of(cases, Path(data)))
    for line in failures:
        print(f"FAIL {line}")
    excepted = [case for case in cases if why_no_case(case) is not None]
    for case in excepted:
        print(f"not over HTTP {case.title}: {why_no_case(case)}")
    for case in cases:
        calls = _list(case.input.get("calls", []))
        for place, call in enumerate(calls):
            reason = why_not_asked(calls, place)
            if reason is not None:
                said = msgspec.json.encode(call).decode()
                print(f"not over HTTP {case.title}, the call {said}: {reason}")
    n_passed = len(cases) - len(excepted) - len(failures)
    print(f"{n_passed} passed, {len(failures)} failed, {len(excepted)} not over HTTP")
    return 1 if failures or not cases else 0


async def _called(session: Seeded, call: JsonValue) -> JsonValue:
    assert isinstance(call, list)
    method, arguments = str(call[0]), [*call[1:], None, None]
    first, second = arguments[0], arguments[1]
    match method:
        case "leaf":
            return {"ok": (await session.handle.scope.list()).stack[-1]}
        case "has":
            rows = (await session.handle.scope.list()).scopes
            return {"ok": any(row.id == first for row in rows)}
        case "open":
            return await session.post("open", first)
        case "leave":
            return await session.post("leave", {})
        case "close" | "enter":
            return await session.post(method, {"scopeId": first})
        case "bind" | "unbind":
            return await session.post(method, {"scopeId": first, "refs": second})
        case "grant" | "revoke":
            return await session.post(method, {"scopeId": first, "principals": second})
        case _:
            raise UnknownOp(method)


async def _within(session: Seeded, scope: JsonValue, callback: str) -> JsonObject:
    assert isinstance(scope, dict)
    said = {name: str(scope[name]) for name in ("kind", "label") if name in scope}
    try:
        async with session.handle.with_work_scope(str(scope["id"]), **said):
            returns = re.fullmatch(r"returns (.*)", callback)
            if returns is None:
                raise RuntimeError(callback)
            return {"ok": json.loads(returns[1])}
    except RuntimeError as error:
        return {"error": {"name": "Error", "message": str(error)}}
    except Refused as error:
        names = {BadRequest: "TypeError", ScopeLimit: "RangeError", ScopeRefused: "Error"}
        return {"error": {"name": names[type(error)], "message": str(error)}}


async def _granted(bench: Bench, entries: list[Entry]) -> JsonObject:
    """Return who may read what after the grant records among ``entries``."""
    session = await bench.seeded([])
    session.hold(entries)
    return await session.granted()


def _changing(appended: Sequence[JsonValue], held: JsonObject) -> list[JsonValue]:
    """Return what was appended without what a revoke has not changed.

    Ours always appends (design.md section 10); the reference names those that held the scope.
    """
    found: list[JsonValue] = []
    for each in appended:
        data = cast("JsonObject", each)
        if data["type"] == "om.scope.revoked":
            holders = _list(held.get(str(data["scopeId"]), []))
            named = [one for one in _list(data["principalIds"]) if one in holders]
            data = {**data, "principalIds": named}
            if not named:
                continue
        found.append(data)
    return found


def _map(answer: JsonObject) -> JsonObject:
    scopes: list[JsonValue] = [
        {key: row[key] for key in ("id", "parentId", "kind", "label", "status") if key in row}
        for row in _objects(answer["scopes"])
    ]
    binds = cast("JsonObject", answer["binds"])
    return {
        "scopes": scopes,
        "binds": [[key, refs] for key, refs in binds.items()],
        "stack": answer["stack"],
    }


def _summary(answer: JsonObject) -> JsonObject:
    found = _map(answer)
    scopes = _objects(found["scopes"])
    binds = cast("list[tuple[str, list[str]]]", found["binds"])
    return {
        "scopeCount": len(scopes),
        "lastScope": scopes[-1]["id"],
        "bindCounts": [[key, len(refs)] for key, refs in binds],
        "stack": found["stack"],
    }


def _list(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def _objects(value: JsonValue) -> list[JsonObject]:
    return cast("list[JsonObject]", value)


def _record(name: str, data: JsonObject) -> Entry:
    return Entry(id=f"g{name}", session_id="s", kind="custom", data=data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
