"""A slow model of the fold: it keeps every accepted event and asks the whole history each time."""

from dataclasses import dataclass, field
from typing import Final

from ombus_schemas.supervision import (
    ChildEvent,
    ChildEventsCapped,
    ChildEventsClosed,
    ChildEventsCoalesced,
    ChildFailed,
    ChildMilestone,
    DelegationAdmitted,
    DelegationCancelled,
    DelegationError,
    DelegationFinished,
    DelegationHeartbeat,
    DelegationRejected,
    DelegationRequested,
    DelegationStarted,
    SupervisionEvent,
)

ENDS: Final = {
    DelegationRejected: "rejected",
    DelegationFinished: "finished",
    DelegationError: "failed",
    DelegationCancelled: "cancelled",
}
NEWS: Final = (
    ChildEvent,
    ChildMilestone,
    ChildEventsCapped,
    ChildEventsCoalesced,
    ChildEventsClosed,
)


@dataclass
class Slow:
    """One delegation and all that was accepted of it, with append times."""

    request: DelegationRequested
    accepted: list[tuple[SupervisionEvent, int]] = field(default_factory=list)

    def of(self, *kinds: type[SupervisionEvent]) -> list[tuple[SupervisionEvent, int]]:
        return [each for each in self.accepted if isinstance(each[0], kinds)]

    @property
    def state(self) -> str:
        for event, _ in self.accepted:
            if type(event) in ENDS:
                return ENDS[type(event)]
        if self.of(DelegationStarted):
            return "started"
        return "admitted" if self.of(DelegationAdmitted) else "requested"

    @property
    def granted(self) -> int:
        """How loud the child may be."""
        admitted, _ = self.of(DelegationAdmitted)[0]
        assert isinstance(admitted, DelegationAdmitted)
        return ["on-complete", "milestones", "stream"].index(admitted.policy.report)

    @property
    def max_events(self) -> int:
        admitted, _ = self.of(DelegationAdmitted)[0]
        assert isinstance(admitted, DelegationAdmitted)
        return admitted.limits.get("childEvents", 4_096)

    @property
    def epoch(self) -> int:
        return len(self.of(DelegationStarted))

    @property
    def lost_after(self) -> int:
        """The last instant at which the lease of the last claim still holds."""
        claim, at_ms = self.of(DelegationStarted)[-1]
        assert isinstance(claim, DelegationStarted)
        beats = [at for beat, at in self.of(DelegationHeartbeat) if beat.epoch == claim.epoch]
        return max([at_ms, *beats]) + claim.lease_ms

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(event.child_ordinal or 0, event.n) for event, _ in self.of(*NEWS)]

    def offer(self, event: SupervisionEvent, at_ms: int) -> str | None:
        """Take the event in, or say why not."""
        why = self.refusal(event, at_ms)
        if why is None:
            self.accepted.append((event, at_ms))
        return why

    def refusal(self, event: SupervisionEvent, at_ms: int) -> str | None:
        state = self.state
        if isinstance(event, NEWS):
            if not self.epoch or self.granted < (2 if isinstance(event, ChildEvent) else 1):
                return "illegal"
            if self.places and (event.child_ordinal or 0, event.n) <= max(self.places):
                return "repeated"
            if self.of(ChildEventsCapped) and not isinstance(event, ChildEventsClosed):
                return "late"
            is_told = isinstance(event, ChildEvent | ChildMilestone)
            is_full = len(self.of(ChildEvent, ChildMilestone)) >= self.max_events
            return "illegal" if is_told and is_full else None
        if isinstance(event, DelegationRequested):
            return "repeated"
        if state in ENDS.values():
            return "late"
        if isinstance(event, DelegationAdmitted):
            return None if state == "requested" else "repeated"
        if isinstance(event, DelegationRejected):
            return None if state == "requested" else "illegal"
        if isinstance(event, DelegationCancelled):
            return None
        if state == "requested":
            return "illegal"
        if isinstance(event, DelegationStarted):
            return self._claim_refusal(event, at_ms)
        if isinstance(event, DelegationHeartbeat):
            if not self.epoch:
                return "illegal"
            return None if event.epoch == self.epoch else "stale"
        is_failing = bool(self.of(ChildFailed))
        if isinstance(event, DelegationFinished) and (state != "started" or is_failing):
            return "illegal"
        if event.epoch not in (0, self.epoch):
            return "stale"
        if isinstance(event, ChildFailed):
            if is_failing:
                return "repeated"
            if event.reason == "lease_lost" and not (self.epoch and at_ms > self.lost_after):
                return "stale"
        return None

    def _claim_refusal(self, event: DelegationStarted, at_ms: int) -> str | None:
        if self.of(ChildFailed):
            return "illegal"
        if event.epoch != self.epoch + 1:
            return "stale"
        if self.epoch and (self.request.on_lost == "fail" or at_ms <= self.lost_after):
            return "illegal"
        return None
