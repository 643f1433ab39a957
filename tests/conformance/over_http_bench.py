"""A gateway in this process, and the sessions that cases have on it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import msgspec
from ombus import Client
from ombus.client.session import Session
from ombus.gateway.app import Gateway
from ombus.gateway.inprocess import UNMETERED, InProcess
from ombus.gateway.serving import Listening, open_gateway
from ombus.settings import load_settings
from ombus_schemas.codec import decode, encode, key_of
from ombus_schemas.entries import Entry, Message
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.route import PREFIX
from ombus_streams.runtime.ports import Draft, EntryLog

from tests.conformance.over_http_shared import granting, grants_log

TENANT: Final = "local"
CLASS_BY_CODE: Final[Mapping[str, str]] = {
    "bad_request": "TypeError",
    "scope_limit": "RangeError",
    "scope_refused": "Error",
}


class Bench:
    """A gateway, a client on it, and the log behind it."""

    def __init__(self, gateway: Gateway, client: Client) -> None:
        self.gateway, self.client = gateway, client
        self.folder = gateway.host.desk.settings.folder
        self._n_sessions = 0

    async def seeded(self, entries: list[Entry], name: str | None = None) -> "Seeded":
        """Return a session that holds the entries, folded; if not named, a new one."""
        self._n_sessions += 1
        name = name or f"case-{self._n_sessions}"
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
        self._next_grant = 0
        self.handle: Session = bench.client.session(name)

    def hold(self, entries: Sequence[Entry]) -> None:
        """Put the grant records among ``entries`` on the grants log, if there are any."""
        granting(self._bench.folder, TENANT, self.name, entries)
        with grants_log(self._bench.folder) as log:
            self._next_grant = log.end(log.partition_of(session_key(TENANT, self.name)))

    async def post(self, command: str, body: JsonValue) -> JsonObject:
        """Return ``{"ok": null}`` or the error of the reference that a refusal stands for."""
        reply = await self._request("POST", f"scopes/{command}", json.dumps(body).encode())
        return {"ok": None} if isinstance(reply, dict) and "error" not in reply else reply

    async def get(self, name: str, **query: str) -> JsonObject:
        return await self._request("GET", name, None, query)

    def appended(self) -> list[JsonValue]:
        """Return the bodies that were appended since the last time, without what is ours."""
        key, log = session_key(TENANT, self.name), self._bench.gateway.host.engine.log
        said, self._next_offset = _read(log, key, self._next_offset)
        with grants_log(self._bench.folder) as grants:
            granted, self._next_grant = _read(grants, key, self._next_grant)
        found: list[JsonValue] = []
        for data in (*said, *granted):
            kept: JsonObject = {
                key: data[key] for key in data if key not in ("openingEntryId", "issuedBy")
            }
            if data["type"] == "om.scope.left":
                kept = {"type": data["type"]}
            if data["type"] != "om.session.owner":
                found.append(kept)
        return found

    async def granted(self) -> JsonObject:
        """Return who may read which scope."""
        return cast("JsonObject", (await self.get("scopes/grants"))["granted"])

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


@asynccontextmanager
async def bench_in(folder: Path, secrets: tuple[str, ...] = ()) -> AsyncIterator[Bench]:
    """Lend a gateway over an empty folder."""
    settings = load_settings({"data": str(folder), "tenant": TENANT}, {}, [])
    settings = msgspec.structs.replace(settings, secrets=secrets)
    gateway = await asyncio.to_thread(
        open_gateway, settings, Listening(), UNMETERED, wait_seconds=0
    )
    gateway.callers.trust()
    gateway.host.start()
    async with Client(transport=InProcess(gateway)) as client:
        yield Bench(gateway, client)


def _read(log: EntryLog, key: bytes, start: int) -> tuple[list[JsonObject], int]:
    """Return the bodies of a session from ``start`` on, and where the log goes on."""
    records = log.read(log.partition_of(key), start, 10_000)
    bodies = [decode(record.value or b"").data for record in records if record.key == key]
    following = records[-1].offset + 1 if records else start
    return cast("list[JsonObject]", bodies), following
