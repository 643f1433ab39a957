"""What a fold keeps of a session: heads and rows, as compact arrays.

Heads are bounded by settings and caps, never by session length; everything that grows is rows.
"""

from typing import Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import Observation, Reflection

FOLD_VERSION: Final = 3
"""Part of folder and group names: another version is built beside, never migrated (section 6)."""

TRUNK: Final = 0
"""The segment above every root: side records without a parent and invalidations, in every view."""

NEVER: Final = 2**63 - 1
"""A cutoff no ordinal reaches."""

PARKED_FOR: Final = 1_000
"""Later entries of the session after which a missing parent is given up (section 4)."""

Place = Literal["chain", "side", "parked", "left_out"]


class IdRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where an entry id lies; ``anchor_*`` is a side record's anchor, a chain entry's own place."""

    place: Place
    segment: int
    ordinal: int
    anchor_segment: int = 0
    anchor_ordinal: int = 0
    conflict: bool = False


class EntryRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One attached entry; ``value`` is the record's bytes, ``anchor`` the ordinal it hangs on."""

    anchor: int
    tokens: int
    at_ms: int
    side: bool
    value: bytes


class ParkedRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An entry whose parent has not arrived."""

    parent: str
    at_ms: int
    value: bytes


class SessionHead(msgspec.Struct, array_like=True):
    """The session as a tree. evolve updates it in place."""

    next_ordinal: int = 1
    arrivals: int = 0
    """Distinct entries so far, parked ones included."""
    n_segments: int = 1
    """The trunk counts."""
    default_segment: int = 0
    """The segment of the default leaf; 0 while there is none."""
    oldest_parked: int = 0
    """Arrival number of the entry parked longest; 0 = none is parked."""
    n_parked: int = 0
    at_ms: int = 0
    n_invalidations: int = 0
    last_invalidation: str | None = None
    n_duplicates: int = 0
    n_repeated_runs: int = 0
    n_refused: int = 0
    """Entries with a known id and other content: dead-lettered."""
    n_orphans: int = 0
    n_left_out: int = 0
    n_conflicts: int = 0
    n_due: int = 0
    """Leaves that have work for some worker."""
    linked_ordinal: int = 0
    """The last entry that is linked to a copy elsewhere; later ones are not."""
    last_link: str | None = None
    """The last record that linked any."""


class Flush(msgspec.Struct, array_like=True):
    """An obligation to cover up to ``ordinal``, then to reflect, then to drop (section 5)."""

    cause: str
    """The id of the request, or ``threshold``, which ends with the observer's stage."""
    ordinal: int
    full: bool = False
    """Reflect over all active observations, not only the uncovered ones."""
    reflect_to: int = -1
    """Observation records to reflect over, fixed when coverage got there; -1 = not yet."""
    respects_thresholds: bool = False
    """The reference's flush: a stage below its threshold is passed over (row 18)."""
    n_observations: int = 0
    n_reflections: int = 0
    n_dropped: int = 0


class CompactRequest(msgspec.Struct, array_like=True, frozen=True):
    """A compaction a host has asked for."""

    cause: str
    trigger: str
    keep_recent: int | None = None
    """Messages that stay raw; ``None``: the setting's."""


class Rejections(msgspec.Struct, array_like=True):
    """Worker records that folded to nothing, by what was wrong with them."""

    stale_base: int = 0
    bad_anchor: int = 0
    not_accepted: int = 0
    """``through`` or ``foldedThrough`` names a record this view does not accept."""
    invalidated: int = 0
    superseded: int = 0
    """A drop after a newer reflection, a second drop, a drop under a host scope."""
    no_progress: int = 0
    """A compaction whose boundary does not move forward."""


class LeafHead(msgspec.Struct, array_like=True):
    """The memory of one leaf. No fact in it is shared with another branch."""

    segment: int
    lineage: list[tuple[int, int]]
    """(segment, last ordinal of it on this chain), from the trunk down to the leaf's own."""
    tip_id: str = ""
    tip_ordinal: int = 0
    at_ms: int = 0
    conflict: bool = False
    """On the losing side of ``expectedLeaf``: kept, but no leaf."""

    coverage_id: str | None = None
    coverage_ordinal: int = 0
    user_ordinal: int = 0
    """The newest message of the user, which every window holds."""
    pending_tokens: int = 0
    n_pending: int = 0
    """Eligible sources after the coverage."""
    threshold_ordinal: int = 0
    """What the threshold obliges to cover; 0 = nothing."""
    flushes: list[Flush] = []

    n_records: int = 0
    """Accepted observation records."""
    last_record: str | None = None
    n_observations: int = 0
    n_active: int = 0
    active_tokens: int | float = 0
    n_dropped: int = 0
    n_invalidated: int = 0

    reflection_id: str | None = None
    reflection_items: int = 0
    reflection_tip_id: str = ""
    """The end of the chain when that reflection was accepted."""
    pool_records: int = 0
    """Observation records accepted until then: what its drop may choose from."""
    reflected_records: int = 0
    """Observation records the last reflection has read."""
    n_reflection_records: int = 0
    n_reflections: int = 0
    n_uncovered: int = 0
    """Active observations the last reflection has not read."""
    uncovered_tokens: int | float = 0
    reflect_to: int = 0
    """Records the threshold obliges to reflect over; 0 = nothing."""

    drop_id: str | None = None
    dropped_for: str | None = None
    """The reflection that has had its drop."""

    compaction_id: str | None = None
    through_id: str | None = None
    through_ordinal: int = 0
    chain_tokens: int = 0
    """Tokens of the chain after ``through_ordinal``."""
    compact_requests: list[CompactRequest] = []

    n_scopes: int = 0
    """Host scopes opened; with any, unbound memory is out of sight and the dropper rests."""
    scope_id: str = "session"
    """The scope on the stack."""
    run_id: str | None = None
    run_at_ms: int = 0
    settings: JsonObject = {}
    model: JsonObject | None = None
    """The session's model: that of the view's last ``model_change``."""
    rejections: Rejections = msgspec.field(default_factory=Rejections)
    given_ordinal: int = 0
    """The newest message that a workspace would get a copy of."""
    is_due: bool = False
    """Whether a worker may have something to do here; counted in the session's head."""


ItemState = Literal["visible", "trimmed", "dropped", "hidden", "invalidated"]
"""Trimmed: active, but not in the last compaction's payload. Hidden: a reflection under a drop."""


class ItemRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One item of one leaf; the number in its key gives ledger order."""

    state: ItemState
    record: str
    """The entry that recorded it first."""
    record_number: int
    """The record of its kind that listed it last."""
    scope_id: str | None


class ObservationRow(ItemRow, array_like=True, frozen=True, gc=False):
    """An observation."""

    item: Observation


class ReflectionRow(ItemRow, array_like=True, frozen=True, gc=False):
    """A reflection."""

    item: Reflection


class NameRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one leaf knows of a memory id, which may name an observation, a reflection, or both."""

    observation: int = 0
    """Its number in ledger order; 0 = never recorded."""
    observation_state: ItemState = "visible"
    reflection: int = 0
    reflection_state: ItemState = "visible"
    dropped: bool = False
    """A drop is permanent, even one that comes before the observation (S6)."""
    pruned: bool = False
    """Dropped only by records whose reason is ``pruned``: reflections stay."""


class AcceptedRow(msgspec.Struct, array_like=True, frozen=True):
    """A record this view accepts; ``number`` counts those of its kind from 1."""

    kind: Literal["observations", "reflections", "drops", "compaction"]
    number: int


class ScopeRow(msgspec.Struct, array_like=True, frozen=True):
    """A scope record of one leaf, and the scope on the stack after it."""

    scope_id: str
    value: JsonObject
    entry_id: str
    """A grant names the entry that opened the scope, and the read checks it (section 10)."""


class InvalidationRow(msgspec.Struct, array_like=True, frozen=True):
    """One ``om.sources.invalidated``; it stands before what attaches from ``ordinal`` on."""

    ordinal: int
    id: str
    reason: str
    ids: tuple[str, ...]
    hold: bool = False
