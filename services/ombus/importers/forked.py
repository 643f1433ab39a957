"""A pi session forked into a file of its own: the copies are the same entries, told once.

The new file starts with copies of the branch it was forked from and names that file
(``parentSession``). If that file is there and has the same ids, the fork is a branch of its
session: the copies are encoded as the original is, so that the log takes each once (cases.md B25).
"""

from pathlib import Path
from typing import IO, Final

import msgspec
from ombus_schemas.jsontext import JsonObject

from ombus.importers.fields import text_of
from ombus.importers.index import Index
from ombus.importers.lines import BadRow, open_utf8, read_row, rows_of
from ombus.importers.pi import Pi

MAX_ANCESTORS: Final = 32
_LOOKED_AT: Final = 60


class Ancestor(msgspec.Struct, frozen=True):
    """The file a fork was copied from, read as far as ids and places."""

    index: Index
    above: "Ancestor | None"

    @property
    def facts(self) -> JsonObject:
        """What the oldest file says about the session."""
        return self.above.facts if self.above is not None else self.index.native.facts("")

    @property
    def session_id(self) -> str | None:
        above = self.above
        return above.session_id if above is not None else self.index.native.session_id("")


def ancestor_of(path: Path, depth: int = 0) -> Ancestor | None:
    """Return what the pi file at ``path`` was copied from, if it is there and shares an id."""
    with open_utf8(path) as file:
        named, first_id = _header(file)
    if not named or not first_id or depth >= MAX_ANCESTORS:
        return None
    name = named.replace("\\", "/").rsplit("/", 1)[-1]
    for candidate in (Path(named), path.parent / name):
        if candidate.is_file() and not candidate.samefile(path):
            above = ancestor_of(candidate, depth + 1)
            index = Index(Pi(), ancestor=above.index if above is not None else None)
            with open_utf8(candidate) as file:
                index.read(file, rows_of(file))
            return Ancestor(index, above) if index.row_of(0, first_id) >= 0 else None
    return None


def _header(file: IO[bytes]) -> tuple[str, str]:
    """Return the file a pi session names as its parent, and the id of its first entry."""
    named = ""
    for row in rows_of(file):
        if row.number > _LOOKED_AT:
            break
        try:
            value = read_row(file, row)
        except BadRow:
            continue
        if not isinstance(value, dict):
            continue
        if value.get("type") == "session":
            named = named or text_of(value, "parentSession")
        elif found := text_of(value, "id"):
            return named, found
    return named, ""
