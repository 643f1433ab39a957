"""One session as an agent's host sees it: append, read, follow, steer.

Reads ask for at least what this handle has written, so a host reads its own writes.
"""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from ombus_schemas import api
from ombus_schemas.ids import is_key_part
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.route import PREFIX

from ombus.client.delegations import Delegations
from ombus.client.errors import BadRequest, Retryable
from ombus.client.granting import Shares
from ombus.client.outbox import Appended, Sent
from ombus.client.scoping import Scopes
from ombus.client.tail import Event, events
from ombus.client.transport import Reply

if TYPE_CHECKING:
    from ombus.client.client import Client

Answer = TypeVar("Answer", bound=msgspec.Struct)
_ASKED: Final = ("leaf", "asOf")


class Session:
    """A handle; two handles on one session are two writers."""

    def __init__(self, client: "Client", session_id: str) -> None:
        if not is_key_part(session_id):
            raise BadRequest(f"{session_id!r} is no session id: 1 to 128 of A-Z a-z 0-9 . _ : -")
        self.id = session_id
        self._client = client
        self._position: str | None = None
        self.delegations = Delegations(client, session_id)
        """The session's children."""

    async def append(self, entry: JsonObject) -> Appended:
        """Append an entry or a message and return once it is durable: on the log, or spooled.

        Raises:
            EntryRejected, Conflict: the entry was judged. Retryable: it may be on the log; the
            same entry with the same id may be appended again. SpoolFull: it was not taken.
        """
        return self._seen(await (await self._put(entry)))

    async def send(self, entry: JsonObject) -> Sent:
        """Take an entry on its way as soon as there is room, and return a future of its answer.

        This is how a host publishes without waiting for the disk; ``drain`` waits for all of it.
        """
        sent = await self._put(entry)
        sent.add_done_callback(self._when_done)
        return sent

    async def drain(self) -> None:
        """Return once everything given to ``send`` was answered."""
        await self._client.drain(self.id)

    async def context(
        self, *, max_tokens: float | None = None, recent: int | None = None, **where: str
    ) -> api.ContextAnswer:
        """Return the blocks to put before a model. ``where``: ``leaf``, ``asOf``."""
        said = {"maxTokens": max_tokens, "recent": recent}
        return await self._read("context", api.ContextAnswer, said, where)

    async def recall(self, memory_id: str, **where: str) -> api.RecallAnswer:
        """Return a memory and its exact sources."""
        if not memory_id.isalnum():
            raise BadRequest("a memory id is twelve hex digits")
        return await self._read(f"memories/{memory_id}", api.RecallAnswer, {}, where)

    async def page(
        self,
        cursor: str,
        *,
        limit: int | None = None,
        direction: str | None = None,
        detail: str | None = None,
        **where: str,
    ) -> api.PageAnswer:
        """Return raw messages around a cursor."""
        said = {"cursor": cursor, "limit": limit, "direction": direction, "detail": detail}
        return await self._read("pages", api.PageAnswer, said, where)

    async def rebuild(self, **where: str) -> api.RebuildAnswer:
        """Return the summaries and messages a model is given again."""
        return await self._read("rebuild", api.RebuildAnswer, {}, where)

    async def entries(
        self, *, after: str | None = None, limit: int | None = None, **where: str
    ) -> api.EntriesAnswer:
        """Return a page of the leaf's entries, oldest first."""
        return await self._read(
            "entries", api.EntriesAnswer, {"after": after, "limit": limit}, where
        )

    async def branches(self) -> api.BranchesAnswer:
        return await self._read("branches", api.BranchesAnswer, {}, {})

    async def status(self, **where: str) -> api.StatusAnswer:
        return await self._read("status", api.StatusAnswer, {}, where)

    async def view(self, *, mode: str | None = None, **where: str) -> api.ViewAnswer:
        return await self._read("view", api.ViewAnswer, {"mode": mode}, where)

    async def flush(
        self, *, wait_seconds: float = 30.0, leaf: str | None = None
    ) -> api.FlushAnswer:
        """Cover, reflect and drop everything appended so far; see ``status`` of the answer."""
        said = api.FlushRequest(id=_new("flush"), leaf=leaf, wait_seconds=wait_seconds)
        return await self._steer("flush", said, api.FlushAnswer)

    async def compact(
        self, *, dry_run: bool = False, wait_seconds: float = 30.0, leaf: str | None = None
    ) -> api.CompactAnswer:
        """Compact the leaf, or with ``dry_run`` learn what that would fold."""
        said = api.CompactRequestBody(
            id=None if dry_run else _new("compact"),
            leaf=leaf,
            wait_seconds=wait_seconds,
            dry_run=dry_run,
        )
        return await self._steer("compact", said, api.CompactAnswer)

    async def invalidate(
        self, *ids: str, reason: str = "revoked", hold: bool = False
    ) -> api.InvalidationAnswer:
        """Take sources out of every memory; effective once this returns."""
        said = {"id": _new("invalidated"), "ids": ids, "reason": reason, "hold": hold}
        asked = msgspec.convert(said, api.InvalidationRequest)
        return await self._steer("invalidations", asked, api.InvalidationAnswer)

    @property
    def scope(self) -> Scopes:
        """The work scopes: ``open``, ``enter``, ``bind`` and so on."""
        return Scopes(self._read, self._steer)

    @property
    def shares(self) -> Shares:
        """The shared scopes: ``grant``, ``revoke``, ``grants``, ``access``."""
        return Shares(self._ask, self._steer)

    def with_work_scope(
        self,
        scope_id: str,
        *,
        parent: str | None = None,
        kind: str | None = None,
        label: str | None = None,
    ) -> AbstractAsyncContextManager[str]:
        """Work in a scope inside the block: it is opened if missing, entered, and left once."""
        return self.scope.working_in(scope_id, parent=parent, kind=kind, label=label)

    @asynccontextmanager
    async def run(self, run_id: str | None = None) -> AsyncIterator[str]:
        """Say that the host's agent is at work inside the block: no compaction until its end."""
        run = run_id or uuid.uuid4().hex
        started = api.RunRequest(id=_new("run"))
        await self._steer(f"runs/{run}/started", started, api.FactAnswer)
        try:
            yield run
        finally:
            finished = api.RunRequest(id=_new("run"))
            await self._steer(f"runs/{run}/finished", finished, api.FactAnswer)

    async def tail(self, after: str | None = None) -> AsyncIterator[Event]:
        """Yield the session's records from ``after`` on (``start``, a position; default: now).

        A connection that breaks, or a gateway that cannot answer now, is asked again behind the
        last event; a gap is read again, too, so every record comes once. Ends when the caller
        stops.
        """
        await self.drain()
        last, pause = after, 0.05
        while True:
            query = {} if last is None else {"after": last}
            try:
                async with self._client.transport.stream(self._path("tail"), query, {}) as stream:
                    if stream.status != 200:
                        reply = Reply(status=stream.status, headers={}, body=stream.body)
                        raise self._client.error_of(reply)
                    async for event in events(stream.lines()):
                        pause = 0.05
                        if event.kind == "gap":
                            break
                        last = event.position or last
                        if event.kind == "entry":
                            yield event
            except Retryable:
                pause = min(2 * pause, 5.0)
            await self._client.pause(pause)

    async def _put(self, entry: JsonObject) -> Sent:
        return await self._client.put(self.id, {"id": uuid.uuid4().hex, **entry})

    def _when_done(self, sent: Sent) -> None:
        if not sent.cancelled() and sent.exception() is None:
            self._seen(sent.result())

    def _seen(self, appended: Appended) -> Appended:
        if appended.position is not None:
            self._position = _later(self._position, appended.position)
        return appended

    async def _read(
        self,
        name: str,
        kind: type[Answer],
        said: Mapping[str, JsonValue],
        where: Mapping[str, str],
    ) -> Answer:
        unknown = [key for key in where if key not in _ASKED]
        if unknown:
            raise BadRequest(f"{unknown[0]} is no parameter of a read")
        query = {key: str(value) for key, value in said.items() if value is not None}
        query |= where
        if self._position is not None:
            query["atLeast"] = self._position
        reply = await self._client.call("GET", self._path(name), query, None)
        return msgspec.json.decode(reply.body, type=kind)

    async def _ask(self, name: str, kind: type[Answer], said: Mapping[str, JsonValue]) -> Answer:
        query = {key: str(value) for key, value in said.items() if value is not None}
        reply = await self._client.call("GET", self._path(name), query, None)
        return msgspec.json.decode(reply.body, type=kind)

    async def _steer(self, name: str, body: msgspec.Struct, kind: type[Answer]) -> Answer:
        await self.drain()
        raw = msgspec.json.encode(body)
        reply = await self._client.call("POST", self._path(name), {}, raw)
        return msgspec.json.decode(reply.body, type=kind)

    def _path(self, name: str) -> str:
        return f"{PREFIX}/sessions/{self.id}/{name}"


def message(role: str, content: str | list[JsonObject], **fields: JsonValue) -> JsonObject:
    """Return an entry for a message; ``fields`` are those of an entry, as ``id`` or ``runId``."""
    said: list[JsonValue] = []
    if isinstance(content, str):
        said.append({"type": "text", "text": content})
    else:
        said += content
    return {"kind": "message", "message": {"role": role, "content": said}, **fields}


def _later(one: str | None, other: str) -> str:
    if one is None or one.rpartition(":")[0] != other.rpartition(":")[0]:
        return other
    return max(one, other, key=lambda each: int(each.rpartition(":")[2]))


def _new(what: str) -> str:
    return f"{what}:{uuid.uuid4().hex}"
