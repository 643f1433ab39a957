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
from ombus.operator.withholding import Withholding

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
            while self._may_go_on():
                items = await self._subscription.take(self._gateway.limits.heartbeat_seconds)
                records = [each for each in items if isinstance(each, LogRecord)]
                async for event in self._shown(records):
                    yield event
                for gap in items:
                    if isinstance(gap, Gap):
                        async for event in self._caught_up(gap):
                            yield event
        finally:
            self._gateway.hub.leave(self._subscription)

    async def _before(self) -> AsyncIterator[ServerSentEvent]:
        """Yield what lies on the log before the buffer begins."""
        start = await self._host.call(lambda: self._log.start(self._partition))
        if self._offset < start:
            yield self._skipped(Gap(self._offset, start - 1, 0))
        while self._may_go_on():
            async for event in self._from_log(self._subscription.start):
                yield event
            if not self._subscription.has_gap:
                return
            # The buffer ran over while the reader caught up: the log still has it all.
            self._gateway.hub.leave(self._subscription)
            self._subscription = await self._gateway.hub.subscribe(self._call.key)

    async def _caught_up(self, gap: Gap) -> AsyncIterator[ServerSentEvent]:
        """Yield what a burst left no room for; only what is too much is skipped."""
        if gap.n_records > self._gateway.limits.max_catch_up:
            yield self._skipped(gap)
            return
        async for event in self._from_log(gap.last + 1):
            yield event

    async def _from_log(self, stop: int) -> AsyncIterator[ServerSentEvent]:
        while self._offset < stop and self._may_go_on():
            n_records = min(PAGE, stop - self._offset)
            read = partial(self._log.read, self._partition, self._offset, n_records)
            page = await self._host.call(read)
            async for event in self._shown(page):
                yield event
            self._offset = max(self._offset, page[-1].offset + 1 if page else stop)

    def _skipped(self, gap: Gap) -> ServerSentEvent:
        self._offset = max(self._offset, gap.last + 1)
        said = {"from": self._at(gap.first), "to": self._at(gap.last), "records": gap.n_records}
        return ServerSentEvent(msgspec.json.encode(said).decode(), event="gap")

    async def _shown(self, records: Iterable[LogRecord]) -> AsyncIterator[ServerSentEvent]:
        fresh = [
            record
            for record in records
            if record.key == self._call.key and record.offset >= self._offset
        ]
        if not fresh:
            return
        hidden = await self._gateway.hub.hidden(self._call.key)
        secrets = self._host.desk.settings.secrets
        for record in fresh:
            self._offset = record.offset + 1
            data = _data(record, self._at(record.offset), hidden, secrets)
            if data is not None:
                yield ServerSentEvent(data, event="entry", id=self._at(record.offset))

    def _may_go_on(self) -> bool:
        return not self._subscription.is_closed and self._is_allowed()

    def _is_allowed(self) -> bool:
        """Say whether the token still holds: a revoked one reads no further."""
        call = self._call
        principal = self._gateway.callers.identify(call.claim)
        return principal is not None and principal.id == call.principal.id

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
