"""Any memory back to its exact sources (S14)."""

from collections.abc import Iterable, Sequence, Set
from typing import Final, Literal, Protocol, TypeAlias

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import (
    Observation,
    Reflection,
    is_memory_id,
    observation_json,
    reflection_json,
)

from ombus_streams.memory.ledger import (
    Ledger,
    blocks_observation,
    blocks_reflection,
    fold,
    merge,
)
from ombus_streams.memory.serialize import entry_json, serialize_entries

NO_MEMORY_ID: Final = (
    "Not a memory id: give the twelve hex digits that stand in brackets before a line."
)


class Shared(Protocol):
    """Memory of the sessions that have granted a scope to this one."""

    @property
    def observations(self) -> Sequence[Observation]: ...
    @property
    def reflections(self) -> Sequence[Reflection]: ...
    @property
    def dropped_ids(self) -> Sequence[str]: ...
    @property
    def entries(self) -> Sequence[Entry]: ...


class NotRecalled(msgspec.Struct, frozen=True, kw_only=True):
    """The id names no memory here."""

    id: str
    reason: Literal["invalid_id", "not_found"]
    text: str


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """The memory is there, but one of its sources is not to be read any more."""

    id: str
    kind: Literal["observation", "reflection"]
    text: str
    """Ids only, never content."""


class RecalledObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation and what it was taken from."""

    observation: Observation
    source_entries: tuple[Entry, ...]
    """In recorded order, repeats included."""
    missing_source_ids: tuple[str, ...]
    dropped: bool
    text: str


class RecalledReflection(msgspec.Struct, frozen=True, kw_only=True):
    """A reflection, the observations it rests on and their sources."""

    reflection: Reflection
    supporting_observations: tuple[Observation, ...]
    """Those recorded, dropped ones included, in support order with repeats."""
    dropped_support_ids: tuple[str, ...]
    missing_support_ids: tuple[str, ...]
    source_entries: tuple[Entry, ...]
    """Each once, in the order first named."""
    missing_source_ids: tuple[str, ...]
    text: str


Recalled: TypeAlias = NotRecalled | Revoked | RecalledObservation | RecalledReflection


def recall(
    entries: Sequence[Entry],
    memory_id: str,
    secrets: Sequence[str] = (),
    invalidated_ids: Set[str] = frozenset(),
    shared: Shared | None = None,
) -> Recalled:
    """Return what ``memory_id`` names on a branch, as ``recall_of`` does of its ledger."""
    return recall_of(fold(entries), entries, memory_id, secrets, invalidated_ids, shared)


def recall_of(
    ledger: Ledger,
    entries: Iterable[Entry],
    memory_id: str,
    secrets: Sequence[str] = (),
    invalidated_ids: Set[str] = frozenset(),
    shared: Shared | None = None,
) -> Recalled:
    """Return what ``memory_id`` names and the sources it rests on; observations come first.

    Sources are looked for among ``entries``. Local memory and entries win over shared ones.
    ``secrets`` are taken out of the source lines alone: whoever passes the answer on redacts it
    whole. Of an id whose sources are invalidated nothing is shown but ids, also when it was
    dropped before.
    """
    if not is_memory_id(memory_id):
        return NotRecalled(id=memory_id, reason="invalid_id", text=NO_MEMORY_ID)
    if shared is not None:
        ledger = merge((ledger, _shared_ledger(shared)))
    observations = {item.id: item for item in ledger.observations}
    sources = _Sources(entries, shared, secrets)
    observation = observations.get(memory_id)
    if observation is not None:
        if blocks_observation(invalidated_ids, observation):
            return _revoked_observation(observation)
        return _recalled_observation(observation, ledger, sources)
    for reflection in ledger.reflections:
        if reflection.id == memory_id:
            if _is_revoked(reflection, observations, invalidated_ids):
                return _revoked_reflection(reflection)
            return _recalled_reflection(reflection, observations, ledger, sources)
    text = f"Nothing recorded here has the id {memory_id}."
    return NotRecalled(id=memory_id, reason="not_found", text=text)


def recall_json(recalled: Recalled) -> JsonObject:
    """Return the answer as a tool gives it."""
    match recalled:
        case NotRecalled():
            return {
                "found": False,
                "id": recalled.id,
                "reason": recalled.reason,
                "text": recalled.text,
            }
        case Revoked():
            return {
                "found": True,
                "id": recalled.id,
                "kind": recalled.kind,
                "dropped": True,
                "reason": "revoked",
                "text": recalled.text,
            }
        case RecalledObservation():
            return {
                "found": True,
                "id": recalled.observation.id,
                "kind": "observation",
                "observation": observation_json(recalled.observation),
                "sourceEntries": [entry_json(entry) for entry in recalled.source_entries],
                "missingSourceEntryIds": list(recalled.missing_source_ids),
                "dropped": recalled.dropped,
                "text": recalled.text,
            }
        case RecalledReflection():
            return {
                "found": True,
                "id": recalled.reflection.id,
                "kind": "reflection",
                "reflection": reflection_json(recalled.reflection),
                "supportingObservations": [
                    observation_json(item) for item in recalled.supporting_observations
                ],
                "droppedSupportingObservationIds": list(recalled.dropped_support_ids),
                "missingSupportingObservationIds": list(recalled.missing_support_ids),
                "sourceEntries": [entry_json(entry) for entry in recalled.source_entries],
                "missingSourceEntryIds": list(recalled.missing_source_ids),
                "text": recalled.text,
            }


class _Sources:
    """Entries by id: of local ones the last, of shared ones those that are not local."""

    def __init__(
        self, entries: Iterable[Entry], shared: Shared | None, secrets: Sequence[str]
    ) -> None:
        local = {entry.id: entry for entry in entries}
        others = {entry.id: entry for entry in shared.entries} if shared is not None else {}
        self.by_id = others | local
        self.secrets = secrets

    def split(self, ids: Iterable[str]) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """Return the entries there are, and the ids of those there are not."""
        ids = tuple(ids)
        return (
            tuple(self.by_id[item] for item in ids if item in self.by_id),
            tuple(item for item in ids if item not in self.by_id),
        )

    def evidence(self, found: Iterable[Entry]) -> str:
        return serialize_entries(found, self.secrets) or "none"


def _shared_ledger(shared: Shared) -> Ledger:
    return Ledger(
        observations=tuple(shared.observations),
        reflections=tuple(shared.reflections),
        dropped_ids=tuple(shared.dropped_ids),
    )


def _recalled_observation(
    item: Observation, ledger: Ledger, sources: _Sources
) -> RecalledObservation:
    found, missing = sources.split(item.source_entry_ids)
    dropped = item.id in ledger.dropped_ids
    mark = " (dropped)" if dropped else ""
    return RecalledObservation(
        observation=item,
        source_entries=found,
        missing_source_ids=missing,
        dropped=dropped,
        text=(
            f"Observation [{item.id}]{mark}: {item.content}\n\n"
            f"Source evidence:\n{sources.evidence(found)}"
        ),
    )


def _recalled_reflection(
    item: Reflection, observations: dict[str, Observation], ledger: Ledger, sources: _Sources
) -> RecalledReflection:
    support_ids, dropped = item.supporting_observation_ids, frozenset(ledger.dropped_ids)
    supports = tuple(observations[one] for one in support_ids if one in observations)
    missing_supports = tuple(one for one in support_ids if one not in observations)
    found, missing = sources.split(
        dict.fromkeys(source for support in supports for source in support.source_entry_ids)
    )
    lines = [f"Reflection [{item.id}]: {item.content}", "", "Supporting observations:"]
    for support in supports:
        mark = " (dropped)" if support.id in dropped else ""
        lines.append(f"- [{support.id}]{mark} {support.content}")
    if missing_supports:
        lines += ["", f"Missing supporting observations: {', '.join(missing_supports)}"]
    lines += ["", "Source evidence:", sources.evidence(found)]
    return RecalledReflection(
        reflection=item,
        supporting_observations=supports,
        dropped_support_ids=tuple(one for one in support_ids if one in dropped),
        missing_support_ids=missing_supports,
        source_entries=found,
        missing_source_ids=missing,
        text="\n".join(lines),
    )


def _is_revoked(
    item: Reflection, observations: dict[str, Observation], invalidated_ids: Set[str]
) -> bool:
    return blocks_reflection(invalidated_ids, item) or any(
        blocks_observation(invalidated_ids, observations[one])
        for one in item.supporting_observation_ids
        if one in observations
    )


def _revoked_observation(item: Observation) -> Revoked:
    sources = ", ".join(item.source_entry_ids) or "none"
    text = (
        f"Observation [{item.id}] of {item.timestamp} rests on sources that were withdrawn: "
        f"{sources}."
    )
    return Revoked(id=item.id, kind="observation", text=text)


def _revoked_reflection(item: Reflection) -> Revoked:
    supports = ", ".join(item.supporting_observation_ids) or "none"
    text = (
        f"Reflection [{item.id}] rests on sources that were withdrawn; its supporting "
        f"observations: {supports}."
    )
    return Revoked(id=item.id, kind="reflection", text=text)
