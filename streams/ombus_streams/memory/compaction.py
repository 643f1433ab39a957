"""The compaction that folds memory instead of asking a model for a summary (S13, S24).

What is kept is everything after ``throughEntryId``, which never passes the recent window nor what
is not observed yet; so nothing unobserved is summarised away (design.md sections 9 and 12, rows 4
and 22). The reference's rules are options: ``alignment="record"``, ``keep="listed"``,
``unobserved="summarised"``, ``redaction="structure"``.
"""

from collections.abc import Sequence, Set
from typing import Final, Literal

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import (
    Observation,
    ObservationsDropped,
    ObservationsRecorded,
    Reflection,
    ReflectionsRecorded,
    compaction_of,
    record_of,
)

from ombus_streams.memory import scopes
from ombus_streams.memory.coverage import eligible_sources
from ombus_streams.memory.ledger import Ledger, active, fold
from ombus_streams.memory.pairing import closure
from ombus_streams.memory.payload import MAX_BYTES, POOL_MAX_TOKENS, Bounded, bound
from ombus_streams.memory.projection import folded_json
from ombus_streams.memory.redact import redact, redact_text
from ombus_streams.memory.render import Advisory, OutlineLine, render_memory
from ombus_streams.memory.scope_projection import project_scopes
from ombus_streams.memory.summary import Compacted, Cut, compaction_data, cut
from ombus_streams.memory.tokens import item_tokens
from ombus_streams.memory.visible import Alignment, all_active, visible
from ombus_streams.memory.window import KEEP_RECENT, window_ids

NAME: Final = "observational-memory"

Keep = Literal["needed", "listed"]
"""``needed``: what pairing needs from before the cut. ``listed``: all that is kept."""
Unobserved = Literal["kept", "summarised"]
Redaction = Literal["content", "structure"]
"""``content``: the words of items, before the payload is measured; its structure stays readable.
``structure``: every string and key of the payload, after."""


class Strategy(msgspec.Struct, kw_only=True, frozen=True):
    """How a compaction is made; the defaults are ours."""

    name: str = NAME
    pool_max_tokens: int | float = POOL_MAX_TOKENS
    max_bytes: int = MAX_BYTES
    keep: Keep = "needed"
    unobserved: Unobserved = "kept"
    alignment: Alignment = "active"
    redaction: Redaction = "content"
    advisory: Advisory = "when_any"


SEED: Final = Strategy(
    keep="listed",
    unobserved="summarised",
    alignment="record",
    redaction="structure",
    advisory="always",
)
"""The reference as the seed documents describe it."""
LATEST: Final = msgspec.structs.replace(SEED, unobserved="kept", advisory="when_any")
"""The newest reference (S24)."""


class Refused(msgspec.Struct, kw_only=True, frozen=True):
    """Why there is no compaction; the raw tail stays."""

    reason: Literal["nothing_folded", "not_forward"]


def compact(
    entries: Sequence[Entry],
    keep_recent: int | float | None = None,
    trigger: str | None = None,
    secrets: Sequence[str] = (),
    invalidated_ids: Set[str] = frozenset(),
    strategy: Strategy | None = None,
) -> Compacted | Refused:
    """Return the compaction of a view, or why it is refused.

    Makes no model call. Ours names ``base`` and ``foldedThrough``, is refused with an empty
    ledger or when the cut does not move past the previous one, and lists the dropped ids its own
    items refer to. Raises ``SizeExceeded`` when reflections alone are over the cap.
    """
    how = strategy or Strategy()
    keep = max(0, KEEP_RECENT if keep_recent is None else keep_recent)
    full = fold(entries)
    place = _cut(entries, keep, full, how)
    held, is_full = _source(entries, full, place, invalidated_ids, how)
    if how.redaction == "content":
        held = _redacted(held, secrets)
    bounded = bound(
        held.observations, held.reflections, held.dropped_ids, how.pool_max_tokens, how.max_bytes
    )
    if how.alignment == "active":
        if not bounded.observations and not bounded.reflections:
            return Refused(reason="nothing_folded")
        if not _moves_forward(entries, place):
            return Refused(reason="not_forward")
    payload: JsonValue = folded_json(
        bounded.full_fold or is_full,
        bounded.observations,
        bounded.reflections,
        bounded.dropped_ids,
    )
    if how.redaction == "structure":
        payload = redact(payload, secrets)
    data = compaction_data(place, how.name, trigger)
    if how.alignment == "active":
        data.update(_provenance(entries))
    return Compacted(
        name=how.name,
        summary=_summary(entries, bounded, full, secrets, how.advisory),
        data={**data, "memory": payload},
        parent_id=entries[-1].id if entries else None,
    )


def _cut(entries: Sequence[Entry], keep: int | float, full: Ledger, how: Strategy) -> Cut:
    listed = window_ids(entries, keep)
    if how.unobserved == "kept":
        pending = eligible_sources(entries, full.observation_coverage_id)
        kept = frozenset(listed).union(entry.id for entry in pending)
        listed = tuple(dict.fromkeys(entry.id for entry in entries if entry.id in kept))
    place = cut(entries, listed)
    if how.keep == "listed":
        return place
    # A side record hangs on the chain and marks no place in it.
    chain = [entry.id for entry in place.older if not entry.side]
    n_older = len(place.older)
    needed = closure(entries, range(n_older, len(entries)))
    return msgspec.structs.replace(
        place,
        keep_ids=tuple(entries[i].id for i in sorted(needed) if i < n_older),
        through_id=chain[-1] if chain else None,
    )


def _source(
    entries: Sequence[Entry],
    full: Ledger,
    place: Cut,
    invalidated_ids: Set[str],
    how: Strategy,
) -> tuple[Ledger, bool]:
    is_full = item_tokens(active(full)) > how.pool_max_tokens
    if how.alignment == "active":
        held = all_active(full, invalidated_ids)
        named = {one for item in held.reflections for one in item.supporting_observation_ids}
        dropped = tuple(one for one in full.dropped_ids if one in named)
        is_full = item_tokens(held.observations) > how.pool_max_tokens
        return msgspec.structs.replace(held, dropped_ids=dropped), is_full
    if is_full:
        return msgspec.structs.replace(full, observations=active(full)), True
    return visible(entries, alignment="record", boundary_id=place.first_kept_id), False


def _redacted(held: Ledger, secrets: Sequence[str]) -> Ledger:
    if not any(secrets):
        return held
    return msgspec.structs.replace(
        held,
        observations=tuple(_redacted_observation(item, secrets) for item in held.observations),
        reflections=tuple(_redacted_reflection(item, secrets) for item in held.reflections),
    )


def _redacted_observation(item: Observation, secrets: Sequence[str]) -> Observation:
    return msgspec.structs.replace(
        item, content=redact_text(item.content, secrets), extra=_redacted_extra(item.extra, secrets)
    )


def _redacted_reflection(item: Reflection, secrets: Sequence[str]) -> Reflection:
    return msgspec.structs.replace(
        item, content=redact_text(item.content, secrets), extra=_redacted_extra(item.extra, secrets)
    )


def _redacted_extra(extra: JsonObject, secrets: Sequence[str]) -> JsonObject:
    redacted = redact(extra, secrets)
    return redacted if isinstance(redacted, dict) else {}


def _summary(
    entries: Sequence[Entry],
    bounded: Bounded,
    full: Ledger,
    secrets: Sequence[str],
    advisory: Advisory,
) -> str:
    scope_map = scopes.fold(entries)
    observations, reflections = bounded.observations, bounded.reflections
    outline: tuple[OutlineLine, ...] = ()
    if scope_map.is_scoped:
        held = Ledger(
            observations=observations,
            reflections=reflections,
            dropped_ids=bounded.dropped_ids,
            pruned_ids=full.pruned_ids,
        )
        scoped = project_scopes(held, scope_map, scope_map.leaf, "self+ancestors")
        observations, reflections = scoped.observations, scoped.reflections
        outline = scoped.outline
    return render_memory(observations, reflections, outline, secrets, advisory=advisory)


def _moves_forward(entries: Sequence[Entry], place: Cut) -> bool:
    if place.through_id is None:
        return False
    order = {entry.id: i for i, entry in enumerate(entries)}
    for entry in reversed(entries):
        compaction = compaction_of(entry)
        if compaction is not None and compaction.through_entry_id is not None:
            before = order.get(compaction.through_entry_id, -1)
            return order[place.through_id] > before
    return True


def _provenance(entries: Sequence[Entry]) -> JsonObject:
    """Return ``base`` and ``foldedThrough`` as ids, those that nothing was folded of left out."""
    base: str | None = None
    marks: dict[str, JsonValue] = {}
    for entry in entries:
        if compaction_of(entry) is not None:
            base = entry.id
        match record_of(entry):
            case ObservationsRecorded():
                marks["observations"] = entry.id
            case ReflectionsRecorded():
                marks["reflections"] = entry.id
            case ObservationsDropped():
                marks["drops"] = entry.id
            case None:
                pass
    return {"base": base, "foldedThrough": marks}
