"""What nobody may read any more, where records are shown as they are (design.md section 10).

Reads of the memory leave invalidated items out one by one. Here whole records are shown, and a
record of memory may quote what was revoked; so in a session that has anything to hide, those are
not shown at all.
"""

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.records import (
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
    folded_of,
)
from ombus_streams.memory.session import Session

_MEMORY = frozenset({OBSERVATIONS_RECORDED, OBSERVATIONS_DROPPED, REFLECTIONS_RECORDED})


class Withholding(msgspec.Struct, frozen=True):
    """Ids whose content is gone for readers; ``corrected`` ones stay readable."""

    ids: frozenset[str]

    def hides(self, entry: Entry) -> bool:
        if not self.ids:
            return False
        tells = entry.kind in ("compaction", "summary") or entry.data_type in _MEMORY
        # A payload is one on an entry of any kind, as imports may have it (S5).
        return tells or entry.id in self.ids or folded_of(entry) is not None


def withholding(session: Session) -> Withholding:
    """Return what the session hides now."""
    return Withholding(
        frozenset(
            name for row in session.invalidations() if row.reason != "corrected" for name in row.ids
        )
    )
