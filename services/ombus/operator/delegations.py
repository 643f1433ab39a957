"""Delegations of a data folder: asked, waited for, ended, told; every handle is a fact on the log.

Nothing here lives in a process: whoever opens the folder may wait for what another one asked. A
``Delegations`` also answers and expires delegations, in a thread, while nobody else does.
"""

import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import msgspec
from ombus_schemas.delegating import (
    DelegateRequest,
    DelegationAnswer,
    SummaryAnswer,
    SummaryRow,
    SupervisionTold,
    TreeAnswer,
)
from ombus_schemas.entries import Entry, Ownership
from ombus_schemas.ids import WORKER_ID_PREFIX, delegation_id, is_child_id, is_entry_id, session_key
from ombus_schemas.supervision import (
    DelegationCancelled,
    DelegationRequested,
    ParentAlive,
    ParentGone,
    ReportPolicy,
)
from ombus_streams.runtime.ports import Clock, Position
from ombus_streams.runtime.records import iso
from ombus_streams.supervision.events import decided, event_entry, event_id, request_entry
from ombus_streams.supervision.handle import Handle
from ombus_streams.supervision.limits import HARD
from ombus_streams.supervision.parent import handle_of, handles_of, parent_of
from ombus_streams.supervision.summary import summary

from ombus.loop_thread import LoopThread
from ombus.operator.delegation_answers import answer_of, node_of, told_of
from ombus.operator.errors import BadDelegation, NoDelegation, OtherRequest, Unanswered
from ombus.settings import ProcessSettings
from ombus.wiring import SystemClock
from ombus.wiring_supervision import Delegated, concealed, open_supervision

FIRST_PAUSE_S: Final = 0.005
MAX_PAUSE_S: Final = 0.1
PAGE: Final = 200
MAX_REASON_CHARS: Final = 500


class Delegations:
    """See the module. ``drives``: do the supervisor's work while nobody else does."""

    def __init__(
        self,
        settings: ProcessSettings,
        clock: Clock | None = None,
        *,
        drives: bool = True,
        supervision: Delegated | None = None,
    ) -> None:
        """``supervision``: where delegations are kept, if not in the data folder; it is closed."""
        self._settings, self._clock = settings, clock or SystemClock()
        self._supervision: Delegated = supervision or open_supervision(settings, self._clock)
        self._max_input = settings.supervision.policy().limits["inputBytes"]
        self._supervisor = LoopThread("ombus-supervisor", self._supervision.run)
        if drives:
            self._supervisor.start()

    @property
    def supervision(self) -> Delegated:
        """The log and the rows, which stay this one's to close."""
        return self._supervision

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process do the work, and close the files. Idempotent."""
        self._supervisor.stop()
        self._supervision.close()

    def append(self, entries: Sequence[Entry]) -> tuple[Position, ...]:
        """Append events as they are, durably, in order: what a child says."""
        return self._supervision.append(entries)

    def delegate(self, key: bytes, asked: DelegateRequest, owner: Ownership) -> DelegationAnswer:
        """Ask for a delegation and return it as it stands; durable once this returns.

        With the id of an earlier request it is that one.

        Raises:
            BadDelegation: an id, a child or a limit that is none.
            OtherRequest: the id of an earlier one that asked for something else.
        """
        tenant, _, session = key.decode().partition("/")
        request_id = asked.id or f"ask:{uuid.uuid4().hex}"
        if not is_entry_id(request_id) or request_id.startswith(WORKER_ID_PREFIX):
            raise BadDelegation("id is no entry id")
        if not is_child_id(asked.child_id):
            raise BadDelegation("childId is no name of a child")
        unknown = [name for name in asked.limits if name not in HARD]
        if unknown:
            raise BadDelegation(f"limits: there is none called {unknown[0][:64]}")
        text = concealed(self._settings, asked.input)
        n_bytes = len(text.encode("utf-8", "replace"))
        request = DelegationRequested(
            child_id=asked.child_id,
            delegation_id=delegation_id(tenant, session, request_id),
            thread_id=asked.thread_id,
            input=text if n_bytes <= self._max_input else "",
            request_entry_id=request_id,
            mode=asked.mode,
            lifetime=asked.lifetime,
            policy=ReportPolicy(
                report=asked.report,
                every_turns=asked.milestone.every_turns,
                when=asked.milestone.when,
            ),
            budget_share=asked.budget_share,
            limits=dict(asked.limits),
            on_lost=asked.on_lost,
            input_bytes=n_bytes,
        )
        known = self._handle(key, request.delegation_id)
        if known is None:
            entry = request_entry(tenant, session, request, self._stamp(), owner)
            (position,) = self._supervision.append([entry])
            known = self._folded_handle(key, request.delegation_id, position)
        if known.child_id != asked.child_id or known.input_bytes != n_bytes:
            raise OtherRequest
        return answer_of(session, known)

    def get(self, key: bytes, delegation: str) -> DelegationAnswer:
        """Return a delegation as it stands.

        Raises:
            NoDelegation: there is none.
        """
        handle = self._handle(key, delegation)
        if handle is None:
            raise NoDelegation(delegation)
        return answer_of(key.decode().partition("/")[2], handle)

    def wait(self, key: bytes, delegation: str, seconds: float) -> DelegationAnswer:
        """Return a delegation once it is over, or as it stands after ``seconds``.

        Raises:
            NoDelegation: there is none.
        """
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_S
        while not (found := self.get(key, delegation)).is_over:
            self._check()
            if time.monotonic() >= deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
        return found

    def cancel(self, key: bytes, delegation: str, reason: str = "cancelled") -> bool:
        """End a delegation; say whether this did, ``False`` if it was over already.

        Raises:
            NoDelegation: there is none.
        """
        handle = self._handle(key, delegation)
        if handle is None:
            raise NoDelegation(delegation)
        if handle.is_over:
            return False
        tenant, _, session = key.decode().partition("/")
        said = concealed(self._settings, reason)[:MAX_REASON_CHARS]
        event = DelegationCancelled(
            child_id=handle.child_id, delegation_id=handle.id, depth=handle.depth, reason=said
        )
        entry = event_entry(
            tenant,
            session,
            event,
            id=event_id("host", handle.id, "cancelled"),
            timestamp=self._stamp(),
        )
        (position,) = self._supervision.append([entry])
        # Of a cancel and an end that race, the log says which came first.
        return self._folded_handle(key, delegation, position).state == "cancelled"

    def alive(self, key: bytes, holder: str, lease_ms: int) -> Position:
        """Say that whoever runs the parent is alive, for ``lease_ms`` from now."""
        tenant, _, session = key.decode().partition("/")
        event = ParentAlive(holder=holder[:MAX_REASON_CHARS], lease_ms=lease_ms)
        id = event_id("host", "", "alive", uuid.uuid4().hex)
        entry = event_entry(tenant, session, event, id=id, timestamp=self._stamp())
        (position,) = self._supervision.append([entry])
        return position

    def gone(self, key: bytes, reason: str) -> Position:
        """Say that the parent's run is over: its task children end."""
        tenant, _, session = key.decode().partition("/")
        said = concealed(self._settings, reason)[:MAX_REASON_CHARS]
        event = ParentGone(reason=said)
        entry = decided(tenant, session, event, self._stamp(), uuid.uuid4().hex)
        (position,) = self._supervision.append([entry])
        return position

    def summary(self, key: bytes) -> SummaryAnswer:
        """Return what became of each child of a session, folded from the log."""
        tenant, _, session = key.decode().partition("/")
        with self._supervision.rows(key) as rows:
            parent = parent_of(rows, key)
        rows_found = summary(parent, lambda below: self._handles(session_key(tenant, below)))
        return SummaryAnswer(
            session=session,
            children=tuple(
                msgspec.convert(row, SummaryRow, from_attributes=True) for row in rows_found
            ),
        )

    def tree(self, key: bytes) -> TreeAnswer:
        """Return every delegation below a session."""
        tenant, _, session = key.decode().partition("/")
        with self._supervision.rows(key) as rows:
            ignored = parent_of(rows, key).ignored

        def handles(below: str) -> list[Handle]:
            return self._handles(session_key(tenant, below))

        secrets = self._settings.secrets
        nodes = tuple(node_of(handle, handles, secrets) for handle in handles(session))
        return TreeAnswer(session=session, nodes=nodes, ignored=dict(ignored))

    def told(self, key: bytes, offset: int, end: int) -> tuple[list[SupervisionTold], int]:
        """Return events of a session from ``offset`` on, a page at most, and where to go on.

        What a child says louder than its delegation granted is not among them. A page ends before
        news of a child that this process has not seen claimed yet.
        """
        log = self._supervision.log
        partition = log.partition_of(key)
        records = log.read(partition, offset, min(PAGE, max(0, end - offset)))
        if not records:
            return [], offset
        with self._supervision.rows(key) as rows:
            found, stopped = told_of(records, key, rows, log.incarnation, self._settings.secrets)
        return found, records[-1].offset + 1 if stopped is None else stopped

    def end(self, key: bytes) -> Position:
        """Return the position the next event of the session's partition will get."""
        log = self._supervision.log
        partition = log.partition_of(key)
        return Position(log.incarnation, partition, log.end(partition))

    def _handle(self, key: bytes, delegation: str) -> Handle | None:
        with self._supervision.rows(key) as rows:
            return handle_of(rows, key, delegation)

    def _handles(self, key: bytes) -> list[Handle]:
        with self._supervision.rows(key) as rows:
            return [*handles_of(rows, key)]

    def _folded_handle(self, key: bytes, delegation: str, position: Position) -> Handle:
        """Return a delegation once ``position`` is folded.

        Raises:
            Unanswered: whoever supervises did not get on.
        """
        deadline = time.monotonic() + self._settings.wait_seconds
        pause = FIRST_PAUSE_S
        while self._supervision.folded(position.partition) <= position.offset:
            self._check()
            if time.monotonic() >= deadline:
                raise Unanswered("the supervisor", self._settings.wait_seconds)
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
        found = self._handle(key, delegation)
        if found is None:
            raise NoDelegation(delegation)
        return found

    def _check(self) -> None:
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _stamp(self) -> str:
        return iso(self._clock.now())
