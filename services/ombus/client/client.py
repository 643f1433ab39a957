"""The client: one class over transports; sessions, their queues, the spool.

``Client(url, token)`` speaks HTTP, or with ``kafka://`` to the brokers; ``Client(transport=...)``
anything else, as the gateway in this process that ``ombus.embedded`` opens.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from ombus_schemas.api import AppendAnswer, EntryResult
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.route import PREFIX

from ombus.client.calls import call, error_of, results_of
from ombus.client.errors import (
    BadRequest,
    NotFound,
    OmbusError,
    Refused,
    Retryable,
    Unauthorized,
)
from ombus.client.outbox import MAX_BATCH, MAX_BATCH_BYTES, Outbox, Sent
from ombus.client.schemes import transport_of
from ombus.client.session import Session
from ombus.client.spool import MAX_BYTES, Spool, Spooled
from ombus.client.transport import SINCE, Reply, Transport

MAX_QUEUED: Final = 1_000


class Client:
    """Use it as ``async with``. Not for several threads."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        gateway: str | None = None,
        transport: Transport | None = None,
        retry_seconds: float = 30.0,
        max_queued: int = MAX_QUEUED,
        spool: Path | None = None,
        spool_after_seconds: float = 1.0,
        max_spool_bytes: int = MAX_BYTES,
    ) -> None:
        """``url``: of a gateway, or ``kafka://HOST:PORT,...`` to append to the log directly; then
        ``gateway`` is the URL of one that answers reads and requests. ``kafka://`` alone: the
        brokers that the settings name.

        ``max_queued``: entries of one session that wait before ``append`` does.

        ``spool``: a file for entries that cannot be delivered for ``spool_after_seconds``.

        Raises:
            BadRequest: neither a URL nor a transport, or both; a URL that is none of ours.
            SpoolBusy: see there.
        """
        if (url is None) == (transport is None):
            raise BadRequest("give a URL, or a transport")
        self.transport = transport or transport_of(url or "", token, gateway)
        self._spool = Spool(spool, max_spool_bytes) if spool is not None else None
        self._retry_seconds, self._spool_after_seconds = retry_seconds, spool_after_seconds
        self._max_queued = max_queued
        self._outboxes: dict[str, Outbox] = {}
        self._tips: dict[str, str] = {}
        self._spooling = asyncio.Lock()
        self._replaying: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._spool is not None and not self._spool.is_empty:
            self._replay_soon()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            for outbox in self._outboxes.values():
                await outbox.drained()
        await self.close()

    def session(self, session_id: str) -> Session:
        """Return a handle on a session, whether or not it is there yet."""
        return Session(self, session_id)

    @property
    def n_spooled_bytes(self) -> int:
        """What waits in the spool."""
        return 0 if self._spool is None or self._spool.is_empty else self._spool.n_bytes

    async def drain(self, session_id: str) -> None:
        """Return once everything taken for a session was answered."""
        outbox = self._outboxes.get(session_id)
        if outbox is not None:
            await outbox.drained()

    async def spooled(self) -> None:
        """Return once the spool is empty: everything that was kept is on the log.

        Raises:
            Unauthorized, NotFound: the token is not for this; the spool keeps what it has.
        """
        while self.n_spooled_bytes:
            self._replay_soon()
            assert self._replaying is not None
            await asyncio.wait([self._replaying])
            self._replaying.result()

    async def put(self, session_id: str, entry: JsonObject) -> Sent:
        """Take an entry of a session; ``Session`` is the way to do it."""
        outbox = self._outboxes.get(session_id)
        if outbox is None:

            async def deliver(entries: Sequence[JsonObject]) -> Sequence[EntryResult] | None:
                return await self._deliver(session_id, entries)

            outbox = self._outboxes[session_id] = Outbox(deliver, self._max_queued)
        return await outbox.put(entry)

    async def call(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """Return the answer to one request, tried again while that can help."""
        return await call(self.transport, method, path, query, body, self._retry_seconds)

    def error_of(self, reply: Reply) -> OmbusError:
        return error_of(reply)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Give up what is under way; what is spooled stays for the next client. Idempotent."""
        for outbox in self._outboxes.values():
            await outbox.close()
        self._outboxes.clear()
        if self._replaying is not None:
            self._replaying.cancel()
            await asyncio.gather(self._replaying, return_exceptions=True)
        if self._spool is not None:
            self._spool.close()
        await self.transport.close()

    async def _deliver(
        self, session_id: str, entries: Sequence[JsonObject]
    ) -> Sequence[EntryResult] | None:
        if self._spool is None:
            return await self._append(session_id, entries, self._retry_seconds)
        if self._spool.is_empty:
            try:
                return await self._append(session_id, entries, self._spool_after_seconds)
            except Retryable:
                pass
        async with self._spooling:
            now_ms = int(time.time() * 1_000)
            lines = [Spooled(session=session_id, entry=each, at_ms=now_ms) for each in entries]
            await asyncio.to_thread(self._spool.add, lines)
        self._replay_soon()
        return None

    async def _append(
        self, session_id: str, entries: Sequence[JsonObject], seconds: float, since_ms: int = 0
    ) -> Sequence[EntryResult]:
        """Append entries in order; the first one hangs on the last one of this client.

        ``since_ms``: when they were sent before; 0: they were not.
        """
        first, tip = entries[0], self._tips.get(session_id)
        if tip is not None and "parentId" not in first and "expectedLeaf" not in first:
            entries = [{**first, "parentId": tip}, *entries[1:]]
        body = msgspec.json.encode({"entries": entries})
        path = f"{PREFIX}/sessions/{session_id}/entries"
        query = {SINCE: str(since_ms)} if since_ms else {}
        reply = await call(self.transport, "POST", path, query, body, seconds)
        if reply.status == 200:
            results = msgspec.json.decode(reply.body, type=AppendAnswer).results
        else:
            results = results_of(reply).results
        if len(results) != len(entries):
            raise BadRequest(f"{len(entries)} entries were answered by {len(results)} results")
        for entry, result in zip(entries, results, strict=True):
            is_chain = not entry.get("side")
            if is_chain and result.status in ("appended", "duplicate"):
                self._tips[session_id] = result.id
        return results

    def _replay_soon(self) -> None:
        if self._replaying is None or self._replaying.done():
            self._replaying = asyncio.create_task(self._replay())

    async def _replay(self) -> None:
        """Send what is spooled, oldest first, until nothing is left."""
        spool = self._spool
        assert spool is not None
        while True:
            async with self._spooling:
                if spool.is_empty:
                    return
                lines, n_bytes = await asyncio.to_thread(spool.peek, MAX_BATCH, MAX_BATCH_BYTES)
            entries = [line.entry for line in lines]
            try:
                since_ms, seconds = lines[0].at_ms, self._retry_seconds
                results = await self._append(lines[0].session, entries, seconds, since_ms)
            except Retryable:
                continue
            except (Unauthorized, NotFound):
                # A person has to see to the token; nothing of the spool is lost meanwhile.
                raise
            except Refused as error:
                code = error.code
                results = [
                    EntryResult(id=str(line.entry.get("id")), status="rejected", code=code)
                    for line in lines
                ]
            async with self._spooling:
                for line, result in zip(lines, results, strict=True):
                    if result.status in ("rejected", "conflict"):
                        spool.reject(line, result.code or result.status)
                spool.sent(n_bytes)
