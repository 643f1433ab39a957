"""The scope vectors through the HTTP API: ``python -m tests.conformance.over_http FOLDER``.

Each case gets a session of its own on a gateway in this process. Its entries are put on the log as
they are, one behind the other: nobody may append memory over HTTP. Then the calls are requests, and
what they answer, and what they have appended, is compared with what is expected.

A refusal is the class of the reference by its code: ``bad_request`` is TypeError, ``scope_limit``
RangeError, ``scope_refused`` Error. ``om.scope.left`` names its scope on our log (design.md section
3), and is compared without it. What HTTP cannot ask is listed with the reason: whole cases in
``NOT_OVER_HTTP``, which must differ, else the run fails; single calls in ``CALLS_NOT_OVER_HTTP``.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import msgspec
from ombus import Client
from ombus.cli.logs import configure
from ombus.client.errors import BadRequest, Refused, ScopeLimit, ScopeRefused
from ombus.client.session import Session
from ombus.gateway.app import Gateway
from ombus.gateway.inprocess import InProcess
from ombus.gateway.limits import Limits
from ombus.gateway.serving import Listening, open_gateway
from ombus.settings import load_settings
from ombus_schemas.codec import decode, encode, key_of
from ombus_schemas.entries import Entry, Message
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.route import PREFIX
from ombus_streams.runtime.ports import Draft

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

TENANT: Final = "local"
NOT_OVER_HTTP: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "scopes_fold/grants/grant_without_open_counts",
            "scopes_fold/grants/grant_on_closed_counts_in_fold",
            "scopes_fold/grants/revoke",
            "scopes_fold/grants/revoke_all_removes_key",
            "scopes_fold/grants/revoke_then_grant",
            "scopes_fold/grants/empty_principals_invalid",
            "scopes_fold/grants/bad_principal_rejects_record",
            "scopes_fold/grants/cap_1025_record_invalid",
            "scopes_fold/grants/cap_1000_plus_100_truncates_to_1024",
        ),
        "grants in a session's log authorise nothing: they have a topic and a fold of their own",
    ),
}
"""Cases by area and name."""
CALLS_NOT_OVER_HTTP: Final[Mapping[str, Mapping[str, str]]] = {
    "scope_controller/errors": {
        '["open",{"id":"p","label":5}]': "a label that is no string is no body of the route: 400 "
        "before its length is looked at",
        '["has","bad id"]': "whether a scope is there is read from the list, which takes no id",
    }
}
"""Calls by case, as JSON; the rest of the case is asked."""
CLASS_BY_CODE: Final[Mapping[str, str]] = {
    "bad_request": "TypeError",
    "scope_limit": "RangeError",
    "scope_refused": "Error",
}


class Bench:
    """A gateway, a client on it, and the log behind it."""

    def __init__(self, gateway: Gateway, client: Client) -> None:
        self.gateway, self.client = gateway, client
        self._n_sessions = 0

    async def seeded(self, entries: list[Entry]) -> "Seeded":
        """Return a new session that holds the entries, folded."""
        self._n_sessions += 1
        name = f"case-{self._n_sessions}"
        log = self.gateway.host.engine.log
        first = Entry(
            id="seed",
            session_id=name,
            tenant_id=TENANT,
            parent_id=None,
            kind="message",
            schema_version=1,
            message=Message(role="system"),
        )
        drafts: list[Entry] = [first]
        for entry in entries:
            changed = msgspec.structs.replace(
                entry,
                session_id=name,
                tenant_id=TENANT,
                parent_id=drafts[-1].id,
                schema_version=1,
            )
            drafts.append(changed)
        positions = log.append([Draft(key=key_of(each), value=encode(each)) for each in drafts])
        await self.gateway.host.until_folded(positions[-1], 30.0)
        return Seeded(self, name, positions[-1].offset + 1)


class Seeded:
    """One case's session."""

    def __init__(self, bench: Bench, name: str, next_offset: int) -> None:
        self._bench, self.name, self._next_offset = bench, name, next_offset
        self.handle: Session = bench.client.session(name)

    async def post(self, command: str, body: JsonValue) -> JsonObject:
        """Return ``{"ok": null}`` or the error of the reference that a refusal stands for."""
        reply = await self._request("POST", f"scopes/{command}", json.dumps(body).encode())
        return {"ok": None} if isinstance(reply, dict) and "error" not in reply else reply

    async def get(self, name: str, **query: str) -> JsonObject:
        return await self._request("GET", name, None, query)

    def appended(self) -> list[JsonValue]:
        """Return the bodies that the case has appended."""
        engine = self._bench.gateway.host.engine
        key = session_key(TENANT, self.name)
        found: list[JsonValue] = []
        for record in engine.log.read(engine.log.partition_of(key), self._next_offset, 10_000):
            if record.key == key:
                data = decode(record.value or b"").data
                assert isinstance(data, dict)
                if data["type"] == "om.scope.left":
                    data = {"type": data["type"]}
                found.append(data)
        return found

    async def _request(
        self, method: str, name: str, body: bytes | None, query: Mapping[str, str] | None = None
    ) -> JsonObject:
        path = f"{PREFIX}/sessions/{self.name}/{name}"
        reply = await self._bench.client.transport.request(method, path, query or {}, body)
        answer: JsonObject = msgspec.json.decode(reply.body)
        if reply.status == 200:
            return answer
        code = str(answer["code"])
        return {"error": {"name": CLASS_BY_CODE.get(code, code), "message": str(answer["detail"])}}


Adapter = Callable[[Bench, JsonObject], Awaitable[Result]]


async def controller(bench: Bench, case: JsonObject) -> Result:
    session = await bench.seeded(entries_of(case["entries"]))
    if case["op"] == "with_scope":
        result = await _within(session, case["scope"], str(case["callback"]))
        return {"result": result, "appended": session.appended()}
    if case["op"] != "controller":
        raise UnknownOp(case["op"])
    calls = case["calls"]
    assert isinstance(calls, list)
    results: list[JsonValue] = [await _called(session, call) for call in calls]
    return {"results": results, "appended": session.appended()}


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
        case op:
            return {"notOverHttp": op}


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


ADAPTERS: dict[str, Adapter] = {
    "scope_controller": controller,
    "scopes_fold": fold,
    "scopes_project": project,
}
"""By area."""


@asynccontextmanager
async def bench_in(folder: Path, secrets: tuple[str, ...] = ()) -> AsyncIterator[Bench]:
    """Lend a gateway over an empty folder."""
    settings = load_settings({"data": str(folder), "tenant": TENANT}, {}, [])
    settings = msgspec.structs.replace(settings, secrets=secrets)
    n_any = 1_000_000
    limits = Limits(
        requests_per_second=n_any,
        burst=n_any,
        tenant_requests_per_second=n_any,
        tenant_burst=n_any,
    )
    gateway = await asyncio.to_thread(open_gateway, settings, Listening(), limits, wait_seconds=0)
    gateway.callers.trust()
    gateway.host.start()
    async with Client(transport=InProcess(gateway)) as client:
        yield Bench(gateway, client)


async def failures_of(cases: list[Case], folder: Path) -> list[str]:
    """Run the cases; return a line for each that does not do what it must."""
    found: list[str] = []
    by_secrets: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        by_secrets.setdefault(tuple(secrets_of(case.input.get("secrets"))), []).append(case)
    for number, (secrets, same) in enumerate(by_secrets.items()):
        async with bench_in(folder / str(number), secrets) as bench:
            for whole in same:
                case = asked_of(whole)
                result = await ADAPTERS[case.area](bench, case.input)
                difference = differences_of(case.expected, result)
                reason = NOT_OVER_HTTP.get(case.title)
                if difference is not None and reason is None:
                    found.append(f"{case.title}: {difference}")
                if difference is None and reason is not None:
                    found.append(f"{case.title}: passes, but was said not to: {reason}")
    return found


def asked_of(case: Case) -> Case:
    """Return the case without the calls that HTTP cannot make.

    Raises:
        ValueError: the case has no such call.
    """
    left_out = CALLS_NOT_OVER_HTTP.get(case.title)
    if left_out is None:
        return case
    calls = [msgspec.json.encode(call).decode() for call in _list(case.input["calls"])]
    expected = cast("JsonObject", case.expected)
    results = _list(expected["results"])
    gone = {calls.index(call) for call in left_out}
    kept = [place for place in range(len(calls)) if place not in gone]
    return msgspec.structs.replace(
        case,
        input={**case.input, "calls": [_list(case.input["calls"])[place] for place in kept]},
        expected={**expected, "results": [results[place] for place in kept]},
    )


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
    excepted = [case for case in cases if case.title in NOT_OVER_HTTP]
    for case in excepted:
        print(f"not over HTTP {case.title}: {NOT_OVER_HTTP[case.title]}")
    for title, calls in CALLS_NOT_OVER_HTTP.items():
        for call, reason in calls.items():
            print(f"not over HTTP {title}, the call {call}: {reason}")
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
