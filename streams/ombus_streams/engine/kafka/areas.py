"""How a partition's keys lie in its database: the first byte of a key is its area.

Rows are an area of their own, so operational rows are outside of what verify compares.
"""

from typing import Final

import msgspec

from ombus_streams.memory.rows import after_prefix
from ombus_streams.runtime.ports import PositionRow

ROWS: Final = b"r"
ROWS_END: Final = b"s"
OPERATIONAL: Final = b"x"
OUTBOX: Final = b"o"
POSITION: Final = b"p"
NEXT_NUMBER: Final = b"n"
"""Numbers of emissions are never given twice, so a late ``sent`` cannot hit a newer one."""

_NUMBER_BYTES: Final = 8
_decoder: Final = msgspec.msgpack.Decoder(PositionRow)
_encoder: Final = msgspec.msgpack.Encoder()


def bounds(prefix: bytes, start: bytes | None, reverse: bool) -> tuple[bytes, bytes]:
    """Return the prefix of all keys of a scan over rows, and the key to begin at."""
    low = ROWS + prefix
    if not reverse:
        return low, low if start is None else max(low, ROWS + start)
    high = after_prefix(low) or b""
    return low, high if start is None else min(high, ROWS + start)


def number_bytes(number: int) -> bytes:
    """Return a number so that byte order is number order."""
    return number.to_bytes(_NUMBER_BYTES, "big")


def position_bytes(row: PositionRow) -> bytes:
    return _encoder.encode(row)


def position_of(stored: bytes | None) -> PositionRow | None:
    return None if stored is None else _decoder.decode(stored)
