"""Our own format: the session's entries as they are on the log, one a line, in the log's order.

Worker records, control entries and what folds to nothing are there too, so that another log folds
the same lines to the same memory.
"""

from collections.abc import Iterator

from ombus_schemas.codec import decode_record, encode
from ombus_schemas.errors import BadRecord

from ombus.wiring import Engine


class OmbusExport:
    """Iterating gives the lines; the counts are complete then."""

    def __init__(self, engine: Engine, key: bytes) -> None:
        self._engine, self._key = engine, key
        self.n_entries = 0
        self.n_bad = 0
        """Records of the session that are no entries: they are in the dead letters."""

    def __iter__(self) -> Iterator[bytes]:
        self.n_entries = self.n_bad = 0
        for record in self._engine.log.of_key(self._key):
            try:
                entry = decode_record(record.key, record.value)
            except BadRecord:
                self.n_bad += 1
                continue
            self.n_entries += 1
            value = record.value or b""
            yield (encode(entry) if b"\n" in value else value) + b"\n"


def export_ombus(engine: Engine, key: bytes) -> OmbusExport:
    """Return the lines of a session."""
    return OmbusExport(engine, key)
