"""One delegation as a child sees it: followed on its log, claimed, kept, and ended.

Nobody is asked who holds a lease: each event is appended and read back in the log's order, which
is the same for everybody (``supervision.handle``). So a child knows its standing without whoever
folds the folder, and two that claim at once both see who came first.
"""

from typing import Final

import msgspec
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of
from ombus_schemas.ids import split_key
from ombus_schemas.supervision import (
    ChildFailed,
    DelegationError,
    DelegationFinished,
    DelegationHeartbeat,
    DelegationStarted,
    SupervisionEvent,
    supervision_event_of,
)

from ombus_streams.runtime.ports import Clock, Draft, EntryLog, LogRecord
from ombus_streams.runtime.records import iso
from ombus_streams.supervision.events import event_entry, event_id
from ombus_streams.supervision.handle import LIVE, Handle, is_lost, step

PAGE: Final = 500
CHILD: Final = "child"
"""In the ids of what children say."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a child failed; texts are redacted and cut."""

    reason: str
    error: str
    status: str = "failed"
    limit: str | None = None
    stop_reason: str | None = None
    total_tokens: int = 0


class Lease:
    """See the module. ``offset``: where the log goes on behind ``handle``."""

    def __init__(
        self,
        log: EntryLog,
        clock: Clock,
        key: bytes,
        handle: Handle,
        offset: int,
        holder: str,
        epoch: int = 0,
    ) -> None:
        parts = split_key(key)
        assert parts is not None
        self.tenant, self.parent = parts
        self.handle, self.holder, self.epoch = handle, holder, epoch
        self._log, self._clock, self._key = log, clock, key
        self._partition, self._offset = log.partition_of(key), offset

    @property
    def is_held(self) -> bool:
        """Say whether this holder runs the child, as far as the log was read."""
        held = self.handle.lease
        return (
            not self.handle.is_over
            and held is not None
            and (held.epoch, held.holder) == (self.epoch, self.holder)
        )

    @property
    def is_claimable(self) -> bool:
        """Say whether a claim would be accepted if it were appended now."""
        handle = self.handle
        if handle.state not in LIVE or handle.failure is not None:
            return False
        if handle.lease is None:
            return True
        return handle.on_lost == "takeover" and is_lost(handle, self._now_ms())

    def advance(self) -> Handle:
        """Return the delegation as the log says now."""
        while page := self._log.read(self._partition, self._offset, PAGE):
            for record in page:
                self._offset = record.offset + 1
                event = _event(record) if record.key == self._key else None
                if event is not None and event.delegation_id == self.handle.id:
                    after = step(self.handle, event, record.at_ms)
                    if isinstance(after, Handle):
                        self.handle = after
        return self.handle

    def claim(self, epoch: int, lease_ms: int) -> bool:
        """Claim what nobody holds, or holds any more; return whether this claim came first.

        Says nothing when ``epoch`` is not the next one.
        """
        self.advance()
        held = self.handle.lease
        if not self.is_claimable or epoch != (1 if held is None else held.epoch + 1):
            return False
        self.epoch = epoch
        self._say(
            "claim",
            DelegationStarted(
                child_id=self.handle.child_id,
                delegation_id=self.handle.id,
                depth=self.handle.depth,
                thread_id=self.handle.thread_id,
                child_session_id=self.handle.child_session_id,
                epoch=self.epoch,
                holder=self.holder,
                lease_ms=lease_ms,
            ),
        )
        return self.is_held

    def beat(self, n: int) -> bool:
        """Keep the lease; return whether it is held. Says nothing when it is not."""
        self.advance()
        if self.is_held:
            self._say(
                f"beat-{n}",
                DelegationHeartbeat(
                    child_id=self.handle.child_id, delegation_id=self.handle.id, epoch=self.epoch
                ),
            )
        return self.is_held

    def finish(self, status: str, output: str | None, total_tokens: int) -> Handle:
        """Say that the child is done; the delegation's state says whether that counted.

        Says nothing when the lease is not held.
        """
        self.advance()
        if not self.is_held:
            return self.handle
        self._say(
            "finish",
            DelegationFinished(
                child_id=self.handle.child_id,
                delegation_id=self.handle.id,
                depth=self.handle.depth,
                child_session_id=self.handle.child_session_id,
                epoch=self.epoch,
                status=status,
                output=output,
                total_tokens=total_tokens,
                holder=self.holder,
            ),
        )
        return self.handle

    def fail(self, failure: Failure) -> Handle:
        """Say that the child failed, and that this is the delegation's end.

        Says nothing when the lease is not held.
        """
        self.advance()
        if not self.is_held:
            return self.handle
        usage = {"totalTokens": failure.total_tokens} if failure.total_tokens else None
        self._say(
            "fail",
            ChildFailed(
                child_id=self.handle.child_id,
                delegation_id=self.handle.id,
                child_session_id=self.handle.child_session_id,
                epoch=self.epoch,
                reason=failure.reason,
                status=failure.status,
                limit=failure.limit,
                stop_reason=failure.stop_reason,
                usage=None if usage is None else {**usage},
                holder=self.holder,
            ),
            DelegationError(
                child_id=self.handle.child_id,
                delegation_id=self.handle.id,
                depth=self.handle.depth,
                child_session_id=self.handle.child_session_id,
                epoch=self.epoch,
                error=failure.error,
                holder=self.holder,
            ),
        )
        return self.handle

    def _say(self, what: str, *bodies: SupervisionEvent) -> None:
        """Append events in one go, and read the log up to them."""
        drafts: list[Draft] = []
        for n, body in enumerate(bodies):
            entry = event_entry(
                self.tenant,
                self.parent,
                body,
                id=event_id(CHILD, self.handle.id, self.epoch, self.holder, what, n),
                timestamp=iso(self._clock.now()),
            )
            drafts.append(Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry)))
        self._log.append(drafts)
        self.advance()

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1_000)


def _event(record: LogRecord) -> SupervisionEvent | None:
    try:
        return supervision_event_of(msgspec.json.decode(record.value or b"null", type=Entry))
    except (msgspec.DecodeError, RecursionError):
        return None
