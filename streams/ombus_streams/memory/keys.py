"""Row keys of a session: ``tenant/session``, a zero byte, one letter for the family, then the rest.

Numbers are big-endian, so byte order is number order. Families of the session: ``h`` head, ``i`` id
to place, ``e`` chain entry by segment and ordinal, ``s`` side record by segment, anchor and ordinal,
``p`` parked, ``w`` who waits for whom, ``v`` invalidations, ``l`` leaf head. Families of a leaf, by
segment: ``o`` visible observations, ``t`` trimmed ones, ``d`` those gone, ``r`` visible reflections,
``q`` those gone, ``k`` memory id to item, ``a`` accepted records, ``g`` scope records.
"""

import struct
from typing import Final

_LEAF: Final = struct.Struct(">I")
_PLACE: Final = struct.Struct(">IQ")
_SIDE: Final = struct.Struct(">IQQ")
_NUMBER: Final = struct.Struct(">Q")

FAMILIES: Final = b"hiespwvlotdrqkag"


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


def all_parked(prefix: bytes) -> bytes:
    return prefix + b"p"


def waiting(prefix: bytes, parent: str, arrival: int | None = None) -> bytes:
    start = prefix + b"w" + parent.encode() + b"\x00"
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
