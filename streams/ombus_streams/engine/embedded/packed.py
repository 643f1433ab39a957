"""Headers of a record as the log keeps them, unpacked by whoever looks: a fold never does."""

from collections.abc import Iterator, Sequence
from typing import Final, overload

import msgspec

Header = tuple[str, bytes]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[Header, ...]).decode


def pack(headers: Sequence[Header]) -> bytes | None:
    """Return the bytes of the column, ``None`` if there are no headers."""
    return _encode(tuple(headers)) if headers else None


class PackedHeaders(Sequence[Header]):
    """What ``pack`` was given, a tuple in all but haste."""

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __iter__(self) -> Iterator[Header]:
        return iter(_decode(self._packed))

    def __len__(self) -> int:
        return len(_decode(self._packed))

    @overload
    def __getitem__(self, index: int) -> Header: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Header]: ...
    def __getitem__(self, index: int | slice) -> Header | Sequence[Header]:
        return _decode(self._packed)[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, PackedHeaders) else other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
