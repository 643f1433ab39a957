"""The shared read: seven steps, in this order, and nothing is ever cached (design.md section 10).

1. Who reads is settled by the caller; the scope is declared, and was opened locally.
2. All waits and fetches: the owner's branch, and those of the peers as far as they are known.
3. The end of the owner's grant partition, asked from the log now.
4. One snapshot of the scope, accepted only if it holds everything below that end. The one by
   which the peers were named is as good as a newer one, if nothing has come since.
5. The reader and the peers are filtered by that snapshot and no other.
6. Invalidations: rows hold nothing invalidated, and the reader applies its own (``shared_rows``).
7. The decision is logged, then it is answered.

A revocation that was acknowledged before the read began lies below the end asked in step 3, so it
is in every snapshot that counts, whatever the store has lost or is behind by (pitfalls.md 10).
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
import structlog
from ombus_schemas.ids import is_key_part, session_key
from ombus_schemas.scopes import ScopeAccess
from ombus_schemas.settings import SharedScope

from ombus_streams.memory import shared
from ombus_streams.memory.scopes import ScopeMap
from ombus_streams.memory.shared import AccessDecision, SharedMemory, Supply
from ombus_streams.memory.shared_rows import SharedBranch, as_branch
from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.grants import (
    AccessLog,
    Branches,
    Decision,
    GrantLog,
    GrantSnapshot,
    GrantStore,
    GrantsUnavailable,
)
from ombus_streams.runtime.metrics import GRANT_DENIALS, Tally
from ombus_streams.runtime.ports import Clock

MAX_WAIT: Final = timedelta(seconds=2)
"""How long a read waits for a store that is behind before it is denied. Zero: a store that is not
behind when it is looked at answers, any other denies."""
MAX_ROUNDS: Final = 4
"""How often a read fetches peers that were granted while it was under way."""
_FIRST_PAUSE_S: Final = 0.001
_MAX_PAUSE_S: Final = 0.02

_log = structlog.get_logger("ombus.shared")

Fetched = dict[str, SharedBranch | None]
"""By session; ``None``: not there, or not to be read now."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """One session that reads what others share with it; its id is the principal."""

    tenant: str
    session_id: str
    declared: Sequence[SharedScope]
    scope_map: ScopeMap
    """Of the leaf that reads, with all that is bound there."""
    memory_id: str | None = None
    """The one memory whose sources are wanted, too."""


class SharedReads:
    """See the module. For several threads at once; it keeps nothing between two reads."""

    def __init__(
        self,
        log: GrantLog,
        store: GrantStore,
        branches: Branches,
        access: AccessLog,
        clock: Clock,
        max_wait: timedelta = MAX_WAIT,
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._log, self._store, self._branches = log, store, branches
        self._access, self._clock, self._max_wait = access, clock, max_wait

    def resolve(self, asking: Asking) -> SharedMemory:
        """Return what the granted scopes share; a denied scope shares nothing. Never raises.

        Without any declared scope nothing is asked. A decision that cannot be logged is not
        answered: then nothing is shared.
        """
        if not asking.declared:
            return SharedMemory()
        supplies: dict[str, Supply] = {}
        for scope in asking.declared:
            if scope.is_valid and scope.scope_id in asking.scope_map.scopes:
                try:
                    supplies[scope.scope_id] = self._supply(asking, scope)
                except RuntimeFault as error:
                    _log.warning(
                        "scope.unavailable",
                        scope_id=scope.scope_id,
                        owner_session_id=scope.owner_session_id,
                        error=type(error).__name__,
                    )
        decisions, resolved = shared.resolve(
            asking.declared, asking.session_id, asking.scope_map, supplies
        )
        for decision in decisions:
            if decision.reason is not None:
                self._tally.add(GRANT_DENIALS, decision.reason)
        if not self._logged(asking, decisions):
            return SharedMemory()
        return shared.merge(resolved)

    def _supply(self, asking: Asking, scope: SharedScope) -> Supply:
        if not is_key_part(scope.owner_session_id):
            raise GrantsUnavailable("an owner that is no session id has no session")
        owner = session_key(asking.tenant, scope.owner_session_id)
        partition = self._log.partition_of(owner)
        seen = self._store.snapshot(self._log.incarnation, partition, owner, scope.scope_id)
        fetched: Fetched = {scope.owner_session_id: self._fetch(asking, scope, owner)}
        opened = fetched[scope.owner_session_id]
        if opened is None or opened.opening_id is None:
            return _supply_of(scope, fetched, ())
        granted = seen.scope.granted(opened.opening_id) if seen is not None else ()
        for _ in range(MAX_ROUNDS):
            for peer in _peers(asking, scope, granted, fetched):
                fetched[peer] = self._fetched(asking, scope, peer)
            end = self._end(partition)
            seen = self._accepted(partition, owner, scope.scope_id, end, seen)
            granted = seen.scope.granted(opened.opening_id)
            if not _peers(asking, scope, granted, fetched):
                return _supply_of(scope, fetched, granted)
        raise GrantsUnavailable("peers are granted faster than they can be read")

    def _end(self, partition: int) -> int:
        """Step 3."""
        return self._log.end(partition)

    def _accepted(
        self,
        partition: int,
        owner: bytes,
        scope_id: str,
        end: int,
        found: GrantSnapshot | None,
    ) -> GrantSnapshot:
        """Step 4; ``found`` is what this read has seen before."""
        deadline, pause = time.monotonic() + self._max_wait.total_seconds(), 0.0
        incarnation, is_late = self._log.incarnation, False
        while found is None or not found.watermark.holds(incarnation, end):
            if is_late:
                held = "nothing" if found is None else f"up to {found.watermark.next_offset:,}"
                raise GrantsUnavailable(
                    f"grants of partition {partition} are held {held}, the log ends at {end:,}"
                )
            # The last look comes when the time is over: a wait of zero is one look after step 3.
            is_late = time.monotonic() >= deadline
            time.sleep(pause)
            pause = min(2 * pause or _FIRST_PAUSE_S, _MAX_PAUSE_S)
            found = self._store.snapshot(incarnation, partition, owner, scope_id)
        return found

    def _fetched(self, asking: Asking, scope: SharedScope, session_id: str) -> SharedBranch | None:
        """A peer that cannot be read is left out in silence (S19)."""
        try:
            return self._fetch(asking, scope, session_key(asking.tenant, session_id))
        except RuntimeFault:
            return None

    def _fetch(self, asking: Asking, scope: SharedScope, key: bytes) -> SharedBranch | None:
        return self._branches.fetch(key, scope.scope_id, asking.memory_id)

    def _logged(self, asking: Asking, decisions: Sequence[AccessDecision]) -> bool:
        now = self._clock.now()
        lines = [_line(asking, decision) for decision in decisions]
        try:
            self._access.record([Decision(at=now, tenant=asking.tenant, access=a) for a in lines])
        except RuntimeFault as error:
            _log.error("scope.access_not_logged", error=type(error).__name__)
            return False
        return True


def _peers(
    asking: Asking, scope: SharedScope, granted: Sequence[str], fetched: Fetched
) -> list[str]:
    """Return whom to read still. A principal of another tenant is no session id: it is nobody."""
    if asking.session_id not in granted:
        return []
    named = shared.sessions_to_read(scope.owner_session_id, granted, asking.session_id)
    return [each for each in named if each not in fetched and is_key_part(each)]


def _supply_of(scope: SharedScope, fetched: Fetched, granted: tuple[str, ...]) -> Supply:
    branches = {
        session_id: as_branch(branch, scope.scope_id)
        for session_id, branch in fetched.items()
        if branch is not None
    }
    return Supply(branches=branches, granted=granted)


def _line(asking: Asking, decision: AccessDecision) -> ScopeAccess:
    return ScopeAccess(
        scope_id=decision.scope_id,
        owner_session_id=decision.owner_session_id,
        principal_id=decision.principal_id,
        granted=decision.granted,
        branches=decision.n_branches,
        observations=decision.n_observations,
        reflections=decision.n_reflections,
        reason=decision.reason,
        reader_session_id=asking.session_id,
    )
