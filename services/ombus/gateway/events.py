"""A tail as server-sent events: ``open``, ``entry``, ``gap``; ids are positions.

``open`` names where the tail begins, so that a reader that saw nothing else resumes there too. Each
``entry`` holds the record's own bytes, unless nobody may read them any more.
"""

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.errors import BadRecord
from ombus_schemas.redaction import redact
from ombus_streams.runtime.ports import LogRecord, Position
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from ombus.gateway.calls import Call
from ombus.gateway.problems import ApiError
from ombus.gateway.tailing import PAGE, Gap, Subscription
from ombus.gateway.withholding import Withholding, withholding

if TYPE_CHECKING:
    from ombus.gateway.app import Gateway

START = "start"


async def tail(gateway: "Gateway", call: Call) -> Response:
    """Return the stream; it begins after ``Last-Event-ID``, else ``after``, else now."""
    host, log = gateway.host, gateway.host.engine.log
    partition = log.partition_of(call.key)
    said = call.last_event_id or call.text("after")
    end = await host.call(lambda: log.end(partition))
    if said is None:
        offset = end
    elif said == START:
        offset = 0
    else:
        offset = host.position_of(said, call.key).offset + 1
        if offset > end:
            raise ApiError("bad_position", "it lies past the end of the log")
    subscription = await gateway.hub.subscribe(call.key)
    return EventSourceResponse(
        _Tail(gateway, call, partition, offset, subscription).events(),
        ping=max(1, round(gateway.limits.heartbeat_seconds)),
        send_timeout=gateway.limits.send_seconds,
        headers={"Cache-Control": "no-store"},
    )


class _Tail:
    def __init__(
        self,
        gateway: "Gateway",
        call: Call,
        partition: int,
        offset: int,
        subscription: Subscription,
    ) -> None:
        self._gateway, self._call, self._partition = gateway, call, partition
        self._offset, self._subscription = offset, subscription
        self._host, self._log = gateway.host, gateway.host.engine.log

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        try:
            opened = msgspec.json.encode({"position": self._at(self._offset - 1)}).decode()
            at = self._at(self._offset - 1) if self._offset else None
            yield ServerSentEvent(opened, event="open", id=at)
            async for event in self._before():
                yield event
            while not self._subscription.is_closed and self._is_allowed():
                items = await self._subscription.take(self._gateway.limits.heartbeat_seconds)
                fresh = [each for each in items if self._is_ahead(each)]
                async for event in self._shown(fresh):
                    yield event
        finally:
            self._gateway.hub.leave(self._subscription)

    async def _before(self) -> AsyncIterator[ServerSentEvent]:
        """Yield what lies on the log before the buffer begins."""
        start = await self._host.call(lambda: self._log.start(self._partition))
        if self._offset < start:
            async for event in self._shown([Gap(self._offset, start - 1, 0)]):
                yield event
        while self._offset < self._subscription.start or self._subscription.has_gap:
            if self._offset >= self._subscription.start:
                # The buffer ran over while the reader caught up: the log still has it all.
                self._gateway.hub.leave(self._subscription)
                self._subscription = await self._gateway.hub.subscribe(self._call.key)
                continue
            if self._subscription.is_closed or not self._is_allowed():
                return
            offset, stop = self._offset, self._subscription.start
            read = partial(self._log.read, self._partition, offset, min(PAGE, stop - offset))
            page = await self._host.call(read)
            own = [record for record in page if record.key == self._call.key]
            async for event in self._shown(own):
                yield event
            self._offset = max(self._offset, page[-1].offset + 1 if page else stop)

    async def _shown(self, items: Iterable[LogRecord | Gap]) -> AsyncIterator[ServerSentEvent]:
        held = list(items)
        if not held:
            return
        hidden = await self._host.call(self._withholding)
        for item in held:
            if isinstance(item, Gap):
                self._offset = item.last + 1
                said = {
                    "from": self._at(item.first),
                    "to": self._at(item.last),
                    "records": item.n_records,
                }
                yield ServerSentEvent(msgspec.json.encode(said).decode(), event="gap")
                continue
            self._offset = item.offset + 1
            secrets = self._host.desk.settings.secrets
            data = _data(item, self._at(item.offset), hidden, secrets)
            if data is not None:
                yield ServerSentEvent(data, event="entry", id=self._at(item.offset))

    def _is_ahead(self, item: LogRecord | Gap) -> bool:
        return (item.last if isinstance(item, Gap) else item.offset) >= self._offset

    def _is_allowed(self) -> bool:
        """Say whether the token still holds: a revoked one reads no further."""
        call = self._call
        principal = self._gateway.identify(call.claim)
        return principal is not None and principal.id == call.principal.id

    def _withholding(self) -> Withholding:
        with self._host.engine.reading(self._call.key) as live:
            return withholding(live.session)

    def _at(self, offset: int) -> str:
        return str(Position(self._log.incarnation, self._partition, offset))


def _data(
    record: LogRecord, position: str, hidden: Withholding, secrets: tuple[str, ...]
) -> str | None:
    """Return what an event says, or ``None`` for a record that is no entry."""
    value = record.value or b""
    try:
        entry = decode(value)
    except BadRecord:
        return None
    said: dict[str, object] = {
        "position": position,
        "atMs": record.at_ms,
        "id": entry.id,
        "kind": entry.kind,
    }
    if hidden.hides(entry):
        said["withheld"] = True
    elif secrets:
        # What became a secret after it was appended is on the log as it was.
        said["entry"] = redact(msgspec.json.decode(value), secrets, max_depth=None)
    else:
        said["entry"] = msgspec.Raw(value)
    return msgspec.json.encode(said).decode()
