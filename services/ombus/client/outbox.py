"""Entries of one session on their way: a bounded queue, one request under way, order kept.

A full queue makes the caller wait. What cannot be delivered goes to the spool if there is one, and
everything after it, until the spool is empty again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import msgspec
from ombus_schemas.api import EntryResult
from ombus_schemas.jsontext import JsonObject

from ombus.client.errors import Closed, Conflict, EntryRejected, OmbusError

MAX_BATCH: Final = 200
MAX_BATCH_BYTES: Final = 2_097_152


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that will be on the log, or is."""

    id: str
    status: Literal["appended", "duplicate", "spooled"]
    """``spooled``: kept in the spool file, sent when the gateway is back."""
    position: str | None


Deliver = Callable[[Sequence[JsonObject]], Awaitable[Sequence[EntryResult] | None]]
"""Returns the result of each entry, or nothing when they were spooled."""
Sent = asyncio.Future[Appended]


class Outbox:
    """See the module."""

    def __init__(self, deliver: Deliver, max_queued: int) -> None:
        self._deliver = deliver
        self._queue: asyncio.Queue[tuple[JsonObject, int, Sent]] = asyncio.Queue(max_queued)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def put(self, entry: JsonObject) -> Sent:
        """Take an entry, once there is room; the future says what became of it.

        Raises:
            Closed: after ``close``.
        """
        if self._is_closed:
            raise Closed("the client is closed")
        sent: Sent = asyncio.get_running_loop().create_future()
        # Whoever does not look at it has no use for a warning that nobody did.
        sent.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await self._queue.put((entry, len(msgspec.json.encode(entry)), sent))
        if self._is_closed:
            _fail(sent, Closed("the client was closed before this was sent"))
        return sent

    async def drained(self) -> None:
        """Return once everything taken so far was answered."""
        await self._queue.join()

    async def close(self) -> None:
        """Stop; what was not sent yet is answered with ``Closed``."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while not self._queue.empty():
            _, _, sent = self._queue.get_nowait()
            self._queue.task_done()
            _fail(sent, Closed("the client was closed before this was sent"))

    async def _run(self) -> None:
        held: tuple[JsonObject, int, Sent] | None = None
        while True:
            batch = [held or await self._queue.get()]
            n_bytes, held = batch[0][1], None
            while len(batch) < MAX_BATCH and not self._queue.empty():
                item = self._queue.get_nowait()
                n_bytes += item[1]
                if n_bytes > MAX_BATCH_BYTES:
                    held = item
                    break
                batch.append(item)
            try:
                await self._send(batch)
            except asyncio.CancelledError:
                for _, _, sent in [*batch, *([held] if held else [])]:
                    _fail(sent, Closed("the client was closed before this was answered"))
                raise
            finally:
                for _ in batch:
                    self._queue.task_done()

    async def _send(self, batch: Sequence[tuple[JsonObject, int, Sent]]) -> None:
        try:
            results = await self._deliver([entry for entry, _, _ in batch])
        except OmbusError as error:
            for _, _, sent in batch:
                _fail(sent, error)
            return
        if results is None:
            for entry, _, sent in batch:
                _set(sent, Appended(id=str(entry["id"]), status="spooled", position=None))
            return
        for (_, _, sent), result in zip(batch, results, strict=True):
            match result.status:
                case "conflict":
                    _fail(sent, Conflict(result.id))
                case "rejected":
                    code, detail = result.code or "rejected", result.detail or "was not taken"
                    _fail(sent, EntryRejected(result.id, code, detail))
                case status:
                    _set(sent, Appended(id=result.id, status=status, position=result.position))


def _set(sent: Sent, value: Appended) -> None:
    if not sent.done():
        sent.set_result(value)


def _fail(sent: Sent, error: OmbusError) -> None:
    if not sent.done():
        sent.set_exception(error)
