"""Where the reading of a file begins: by its content, and by what was under its path before."""

from typing import IO

import msgspec

from ombus.importers.transcript import fit
from ombus.watch.content import Content, content_of, fingerprint, first_line, last_line_end
from ombus.watch.positions import Position
from ombus.watch.scan import Found, origin_of


def still_holds(file: IO[bytes], found: Found, position: Position) -> bool:
    """Say whether the file still holds what was read up to ``position``."""
    if found.size < position.offset:
        return False
    return not position.fingerprint or fingerprint(file, position.offset) == position.fingerprint


def at_end(found: Found, file: IO[bytes]) -> Position:
    """Return the position of a file of which everything so far is left out."""
    end, line = last_line_end(file)
    return Position(
        path=found.path,
        origin=origin_of(found.path),
        offset=end,
        line=line,
        start=end,
        changed_ns=found.changed_ns,
        fingerprint=fingerprint(file, end),
        first=first_line(file),
    )


def succeeding(found: Found, file: IO[bytes], before: Position | None) -> Position | None:
    """Return where to begin with a content that was never read."""
    content = content_of(file)
    if content is None and before is not None and before.format is not None:
        content = content_of(file, before.format)
    if content is None:
        return None
    fresh = Position(path=found.path, origin=origin_of(found.path))
    if before is None:
        return as_content(fresh, content)
    first = first_line(file)
    fresh = msgspec.structs.replace(fresh, first=first, generation=before.generation + 1)
    if content.is_whole or before.format is None or before.is_whole:
        return as_content(fresh, content)
    if content.session is not None and fit(content.session) != before.session:
        return as_content(fresh, content)
    if first == before.first:
        # Written anew from its beginning: what is the same is on the log.
        return msgspec.structs.replace(
            fresh,
            format=before.format,
            session=before.session,
            base=before.base,
            line=before.base + 1,
            above=before.above,
        )
    return msgspec.structs.replace(
        fresh,
        format=before.format,
        session=before.session,
        base=before.line - 1,
        line=before.line,
        above=before.tip,
        tip=before.tip,
    )


def as_content(position: Position, content: Content | None) -> Position | None:
    """Return the position with what is known of the content, ``None`` while nothing is."""
    if content is None:
        return None
    return msgspec.structs.replace(position, format=content.format, is_whole=content.is_whole)
