"""What there is: the sessions of a data folder, and how one leaf of them stands."""

import msgspec
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory import reading
from ombus_streams.memory.commands import Status, status_json, status_text
from ombus_streams.memory.duties import WORKERS
from ombus_streams.memory.terms import is_run_active, settings_of
from ombus_streams.runtime.scheduler import attempts_in

from ombus.operator.desk import Desk
from ombus.operator.lookup import Lens
from ombus.wiring import Engine


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One session; memory is that of its default leaf."""

    session: str
    entries: int
    branches: int
    observations: int
    """Active ones."""
    reflections: int
    compacted_through: str | None
    leaf: str | None
    last_at_ms: int


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a leaf stands."""

    status: Status
    n_pending: int
    pending_tokens: int
    message_tokens: int | float
    covered_to: str | None
    compacted_through: str | None
    waiting: tuple[str, ...]
    """What was asked for and not answered yet."""
    parked: dict[str, str]
    """Why each parked worker is not asked."""
    lag: int
    rejections: dict[str, int]

    def as_json(self) -> JsonObject:
        return {
            **status_json(self.status),
            "pending": {
                "sources": self.n_pending,
                "tokens": self.pending_tokens,
                "threshold": self.message_tokens,
            },
            "coveredTo": self.covered_to,
            "compactedThrough": self.compacted_through,
            "waiting": list(self.waiting),
            "parked": {**self.parked},
            "rejections": {**self.rejections},
            "lag": self.lag,
        }

    def lines(self) -> list[str]:
        """Return what a person reads."""
        lines = status_text(self.status).split("\n")
        lines.append(
            f"Pending: {self.n_pending:,} sources of {self.pending_tokens:,} tokens (a run starts "
            f"at {self.message_tokens:,}), covered to {self.covered_to or 'nothing'}, compacted "
            f"through {self.compacted_through or 'nothing'}."
        )
        lines += [f"Waiting: {what}." for what in self.waiting]
        lines += [f"Parked: {worker}: {why}" for worker, why in self.parked.items()]
        if self.rejections:
            counts = ", ".join(f"{count:,} {why}" for why, count in self.rejections.items())
            lines.append(f"Rejected worker records: {counts}.")
        if self.lag:
            lines.append(f"Not folded yet: {self.lag:,} records.")
        return lines


def overview(engine: Engine) -> list[SessionRow]:
    """Return every session there is, in the order of their keys."""
    found: list[SessionRow] = []
    for key in engine.sessions():
        with engine.reading(key) as live:
            head = live.session.head
            leaves = [live.session.leaf(segment) for segment in live.session.segments()]
            leaf = live.session.leaf(head.default_segment) if head.default_segment else None
            found.append(
                SessionRow(
                    session=key.decode(),
                    entries=head.arrivals,
                    branches=sum(not each.conflict for each in leaves),
                    observations=leaf.n_active if leaf else 0,
                    reflections=leaf.n_reflections if leaf else 0,
                    compacted_through=leaf.through_id if leaf else None,
                    leaf=leaf.tip_id if leaf else None,
                    last_at_ms=head.at_ms,
                )
            )
    return found


def status_of(desk: Desk, lens: Lens) -> Standing:
    """Return how the leaf stands; what is operational is of now, also with ``--as-of``."""
    session, leaf, engine = lens.session, lens.leaf, desk.engine
    parked: dict[str, str] = {}
    with engine.rows(lens.position.partition) as rows:
        for worker in WORKERS:
            attempts = attempts_in(rows, (session.key, leaf.segment, worker))
            if attempts.is_parked:
                parked[worker] = attempts.reason
    runtime: JsonObject = {"inFlight": leaf.is_due and desk.is_worked}
    if parked:
        runtime["lastError"] = next(iter(parked.values()))
    waiting = [f"flush {flush.cause}" for flush in leaf.flushes if flush.cause != "threshold"]
    waiting += [f"compaction {request.cause}" for request in leaf.compact_requests]
    if is_run_active(session, leaf):
        waiting.append(f"no compaction while the host's run {leaf.run_id} is active")
    counts: dict[str, int] = msgspec.structs.asdict(leaf.rejections)
    return Standing(
        status=reading.status(session, leaf, runtime),
        n_pending=leaf.n_pending,
        pending_tokens=leaf.pending_tokens,
        message_tokens=settings_of(session, leaf).observation.message_tokens,
        covered_to=leaf.coverage_id,
        compacted_through=leaf.through_id,
        waiting=tuple(waiting),
        parked=parked,
        lag=engine.lag(),
        rejections={why: count for why, count in counts.items() if count},
    )
