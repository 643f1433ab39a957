"""Results that were prepared before anybody owed them, and when they are put to use.

They live in the process alone: losing them costs a model call, never memory. ``memory.ahead`` says
what is prepared; here is what is held, for whom, and since when.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.records import Observation, ObservationsRecorded, record_of

from ombus_streams.memory import ahead
from ombus_streams.memory.effects import PrepareObserver, RunObserver
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.session import Session

MAX_HELD: Final = 1_000
"""Leaves with prepared results in a process; the ones prepared longest ago are let go."""

Place = tuple[bytes, int]
"""Session key, segment."""


class AheadPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How far ahead to work."""

    share: float = 0.25
    """The part of the observation threshold at which a run is prepared."""
    idle: timedelta = timedelta(minutes=5)
    """A session that gained nothing for this long is given what is prepared."""


class Ahead:
    """What is prepared for the leaves of one partition."""

    def __init__(self, policy: AheadPolicy) -> None:
        self._policy = policy
        self._idle_ms = round(policy.idle.total_seconds() * 1_000)
        self._held: dict[Place, tuple[PrepareObserver, ...]] = {}
        self._given_up: dict[Place, str | None] = {}
        """Leaves whose preparation failed, by their coverage then: the obligation's run is next."""

    def held(self, session: Session, leaf: LeafHead) -> tuple[PrepareObserver, ...]:
        """Return what is prepared and still holds, oldest first."""
        place = (session.key, leaf.segment)
        found = self._held.get(place, ())
        while found and found[0].run.base != leaf.coverage_id:
            # The oldest one was appended and is folded; what follows began at its end.
            found = found[1:]
        if found and not ahead.is_current(session, leaf, found[0]):
            found = ()
        if place in self._held:
            self._held.pop(place)
            if found:
                self._held[place] = found
        return found

    def wanted(self, session: Session, leaf: LeafHead) -> PrepareObserver | None:
        """Return what is to be prepared now."""
        place = (session.key, leaf.segment)
        if place in self._given_up:
            if self._given_up[place] == leaf.coverage_id:
                return None
            del self._given_up[place]
        return ahead.prepare(session, leaf, self._policy.share, self.held(session, leaf))

    def ready(self, session: Session, leaf: LeafHead) -> RunObserver | None:
        """Return the prepared run an obligation may use, which costs no call any more."""
        found = self.held(session, leaf)
        return found[0].run if found else None

    def rests(self, session: Session, now_ms: int) -> bool:
        """Say whether the session has gained nothing for the idle time."""
        return now_ms - session.head.at_ms >= self._idle_ms

    def keep(self, place: Place, prepared: PrepareObserver) -> None:
        """Hold a result until it is owed."""
        self._held[place] = (*self._held.pop(place, ()), prepared)
        while len(self._held) > MAX_HELD:
            self._held.pop(next(iter(self._held)))

    def give_up(self, place: Place, base: str | None) -> None:
        """Prepare nothing more for a leaf until its coverage has moved."""
        self._given_up[place] = base
        while len(self._given_up) > MAX_HELD:
            self._given_up.pop(next(iter(self._given_up)))


class Shelf:
    """The entries of prepared runs, by run: the interpreter takes from it instead of asking."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def put(self, run_id: str, entry: Entry) -> None:
        self._entries[run_id] = entry
        while len(self._entries) > MAX_HELD:
            self._entries.pop(next(iter(self._entries)))

    def take(self, run_id: str) -> Entry | None:
        return self._entries.pop(run_id, None)

    def items(self, run_ids: Sequence[str]) -> list[Observation]:
        """Return what the entries of these runs say: an observer that goes on is shown it."""
        entries = (self._entries.get(each) for each in run_ids)
        records = (record_of(entry) for entry in entries if entry is not None)
        return [
            item
            for record in records
            if isinstance(record, ObservationsRecorded)
            for item in record.observations
        ]
