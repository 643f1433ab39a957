"""Row keys of a session: ``tenant/session``, a zero byte, one letter for the family, then the rest.

Numbers are big-endian, so byte order is number order.

Families of the session: ``h`` head, ``i`` id to place, ``e`` chain entry by segment and ordinal,
``s`` side record by segment, anchor and ordinal, ``p`` parked, ``x`` left out, ``w`` who waits for
whom, ``v`` invalidations, ``m`` copies in other sessions, ``l`` leaf head. Families of a leaf, by
segment: ``o`` visible observations, ``t`` trimmed ones, ``d`` gone ones, ``r`` visible reflections,
``q`` gone ones, ``k`` memory id to item, ``a`` accepted records, ``n`` observation record by
number, ``g`` scope records.
Above all sessions, behind a zero byte: ``s`` those there are, ``d`` those with work due.
"""

import struct
from typing import Final

_LEAF: Final = struct.Struct(">I")
_PLACE: Final = struct.Struct(">IQ")
_SIDE: Final = struct.Struct(">IQQ")
_NUMBER: Final = struct.Struct(">Q")

FAMILIES: Final = {
    "h": "head",
    "i": "place of an entry",
    "e": "chain entry",
    "s": "side record",
    "p": "parked entry",
    "x": "left-out side record",
    "w": "wait for a parent",
    "v": "invalidation",
    "m": "copy of an entry",
    "l": "leaf head",
    "o": "visible observation",
    "t": "trimmed observation",
    "d": "gone observation",
    "r": "visible reflection",
    "q": "gone reflection",
    "k": "memory id",
    "a": "accepted record",
    "n": "number of a record",
    "g": "scope record",
}
"""What a row of each family is called."""


_SESSIONS: Final = b"\x00s"
_DUE: Final = b"\x00d"


def session_mark(key: bytes = b"") -> bytes:
    """Return the row that says the session exists; without a key, the prefix of them all."""
    return _SESSIONS + key


def due_mark(key: bytes = b"") -> bytes:
    """Return the row that says the session may have work due; the prefix without a key."""
    return _DUE + key


def session_prefix(key: bytes) -> bytes:
    """Return the prefix of all rows of the session whose record key is ``key``."""
    return key + b"\x00"


def head(prefix: bytes) -> bytes:
    return prefix + b"h"


def entry_id(prefix: bytes, entry: str) -> bytes:
    return prefix + b"i" + entry.encode()


def entries(prefix: bytes, segment: int) -> bytes:
    return prefix + b"e" + _LEAF.pack(segment)


def entry(prefix: bytes, segment: int, ordinal: int) -> bytes:
    return prefix + b"e" + _PLACE.pack(segment, ordinal)


def sides(prefix: bytes, segment: int) -> bytes:
    return prefix + b"s" + _LEAF.pack(segment)


def side(prefix: bytes, segment: int, anchor: int, ordinal: int) -> bytes:
    return prefix + b"s" + _SIDE.pack(segment, anchor, ordinal)


def parked(prefix: bytes, arrival: int) -> bytes:
    return prefix + b"p" + _NUMBER.pack(arrival)


def left_out(prefix: bytes, arrival: int) -> bytes:
    return prefix + b"x" + _NUMBER.pack(arrival)


def all_parked(prefix: bytes) -> bytes:
    return prefix + b"p"


def waiting(prefix: bytes, parent: str, arrival: int | None = None) -> bytes:
    name = parent.encode()  # anything may be on the log as a parent, a zero byte included
    start = prefix + b"w" + _LEAF.pack(len(name)) + name
    return start if arrival is None else start + _NUMBER.pack(arrival)


def number_at_end(key: bytes) -> int:
    """Return the 64-bit number a key ends with."""
    number: int = _NUMBER.unpack(key[-8:])[0]
    return number


def leaf(prefix: bytes, segment: int) -> bytes:
    return prefix + b"l" + _LEAF.pack(segment)


def of_leaf(prefix: bytes, family: bytes, segment: int) -> bytes:
    """Return the prefix of one family of one leaf."""
    return prefix + family + _LEAF.pack(segment)


def item(prefix: bytes, family: bytes, segment: int, number: int) -> bytes:
    return prefix + family + _PLACE.pack(segment, number)


def named(prefix: bytes, family: bytes, segment: int, name: str) -> bytes:
    return prefix + family + _LEAF.pack(segment) + name.encode("utf-8", "surrogatepass")


def invalidation(prefix: bytes, number: int) -> bytes:
    return prefix + b"v" + _NUMBER.pack(number)


def invalidations(prefix: bytes) -> bytes:
    return prefix + b"v"


def link(prefix: bytes, source: str, target: str = "") -> bytes:
    """Return the row of a source's copy in a session; without a target, the prefix of them all."""
    return prefix + b"m" + source.encode("utf-8", "surrogatepass") + b"\x00" + target.encode()


def described(key: bytes) -> tuple[str, str]:
    """Return the session a row belongs to (empty above sessions) and the row in words."""
    if key.startswith((_SESSIONS, _DUE)):
        mark = "mark of a session" if key.startswith(_SESSIONS) else "mark of due work"
        return key[2:].decode("utf-8", "replace"), mark
    session, _, rest = key.partition(b"\x00")
    family, name = chr(rest[0]) if rest else "", rest[1:]
    if family == "m":
        shown = " in ".join(name.decode("utf-8", "replace").split("\x00"))
    elif family == "i":
        shown = name.decode("ascii", "replace")
    elif family == "w":
        shown = name[_LEAF.size : -_NUMBER.size].decode("utf-8", "replace")
    elif family in "ka":
        shown = name[_LEAF.size :].decode("utf-8", "replace")
        shown = f"{shown} of leaf {int.from_bytes(name[: _LEAF.size], 'big')}"
    else:
        shown = "/".join(str(int.from_bytes(part, "big")) for part in _parts(name))
    return session.decode("utf-8", "replace"), f"{FAMILIES.get(family, family)} {shown}".rstrip()


def _parts(name: bytes) -> list[bytes]:
    parts = [name[: _LEAF.size]] if len(name) % 8 else []
    at = len(parts[0]) if parts else 0
    return parts + [name[start : start + 8] for start in range(at, len(name), 8)]
