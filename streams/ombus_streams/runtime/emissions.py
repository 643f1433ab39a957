"""What a fold emits: rows of the outbox, each with where it goes (design.md section 6).

They are written in the transaction of the batch that asked for them and deleted once they are
acknowledged: a crash repeats an emission and loses none. Whoever gets them knows a repetition.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, Literal

import msgspec
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of

from ombus_streams.runtime.ports import Draft

Destination = Literal["dead_letters", "entries"]


class Emission(msgspec.Struct, frozen=True):
    """One record, and the log it is for."""

    to: Destination
    draft: Draft


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Emission).decode


def dead_letter(draft: Draft) -> bytes:
    """Return the outbox row of a record for the dead letters."""
    return _encode(Emission("dead_letters", draft))


def entry(emitted: Entry) -> bytes:
    """Return the outbox row of an entry of another session."""
    draft = Draft(key=key_of(emitted), value=encode(emitted), headers=headers_of(emitted))
    return _encode(Emission("entries", draft))


def of(row: bytes) -> Emission:
    """Return what a row of the outbox holds."""
    return _decode(row)


def batches(rows: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Destination, list[Draft], int]]:
    """Yield runs of one destination, in order, each with the number of its last row."""
    numbered = [(number, of(value)) for number, value in rows]
    for to, run in groupby(numbered, key=lambda one: one[1].to):
        items = list(run)
        yield to, [emission.draft for _, emission in items], items[-1][0]
