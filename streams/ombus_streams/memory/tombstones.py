"""Deletions that name memory: the drop handler (S20)."""

from collections.abc import Iterable, Sequence
from typing import Final

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import OBSERVATIONS_DROPPED

from ombus_streams.memory.ledger import active, blocks_observation, fold

KIND: Final = "observational"
"""The kind of memory this handler answers for."""


def tombstone(entries: Sequence[Entry], ids: Iterable[str]) -> JsonObject | None:
    """Return the record that drops every active observation ``ids`` hits, by its id or a source.

    ``None`` when it hits none. The record has no coverage and no reason, so what rests on the
    observations is hidden with them; ids of reflections hit nothing.
    """
    hit = frozenset(ids)
    gone = [item.id for item in active(fold(entries)) if blocks_observation(hit, item)]
    if not gone:
        return None
    return {"type": OBSERVATIONS_DROPPED, "observationIds": list(gone)}
