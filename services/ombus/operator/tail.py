"""The log as it is: its last records, and those that come."""

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import split_key
from ombus_streams.memory.window import block_text
from ombus_streams.runtime.ports import LogRecord, Position

from ombus.operator.withholding import Withholding, withholding
from ombus.wiring import Engine

PAGE: Final = 500
WAIT: Final = timedelta(seconds=1)
MAX_GIST: Final = 160


class Shown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One record, for people and programs."""

    position: str
    at_ms: int
    session: str
    gist: str
    """Id, kind and the beginning of what it says, on one line."""
    entry: msgspec.Raw | None
    """The entry's bytes as they are on the log; ``None``: they are no JSON, or withheld."""
    withheld: bool = False
    """What it says was invalidated, and nobody may read it any more."""


def records(engine: Engine, key: bytes | None, n_last: int, *, follow: bool) -> Iterator[Shown]:
    """Yield the last records of a session, or of the log, then with ``follow`` those that come.

    Of several partitions the order is that of append times; within one it is the log's.
    """
    log = engine.log
    partitions = tuple(range(log.partitions)) if key is None else (log.partition_of(key),)
    ends = {partition: log.end(partition) for partition in partitions}
    yield from _shown(engine, _last(engine, key, n_last, ends))
    while follow:
        log.wait(ends, WAIT)
        fresh: list[LogRecord] = []
        for partition in partitions:
            while found := log.read(partition, ends[partition], PAGE):
                ends[partition] = found[-1].offset + 1
                fresh += [record for record in found if key is None or record.key == key]
        yield from _shown(engine, sorted(fresh, key=_place))


def _last(
    engine: Engine, key: bytes | None, n_last: int, ends: dict[int, int]
) -> Iterable[LogRecord]:
    log = engine.log
    if key is not None:
        return deque(log.of_key(key, ends[log.partition_of(key)]), maxlen=n_last)
    found: list[LogRecord] = []
    for partition, end in ends.items():
        start = max(log.start(partition), end - n_last)
        while start < end:
            page = log.read(partition, start, min(PAGE, end - start))
            if not page:
                break
            found += page
            start = page[-1].offset + 1
    return sorted(found, key=_place)[max(0, len(found) - n_last) :]


def _place(record: LogRecord) -> tuple[int, int, int]:
    return record.at_ms, record.partition, record.offset


def _shown(engine: Engine, records: Iterable[LogRecord]) -> Iterator[Shown]:
    """Yield what may be read of the records, by what is invalidated when the first one is."""
    hidden: dict[bytes, Withholding] = {}
    for record in records:
        key, value = record.key or b"", record.value or b""
        is_withheld = False
        try:
            entry = decode(value)
        except BadRecord as error:
            gist, raw = f"({error})", None
        else:
            if key not in hidden:
                hidden[key] = _withholding(engine, key)
            is_withheld = hidden[key].hides(entry)
            gist, raw = _gist(entry), msgspec.Raw(value)
            if is_withheld:
                gist, raw = f"{entry.id} {entry.data_type or entry.kind}: (invalidated)", None
        yield Shown(
            position=str(Position(engine.log.incarnation, record.partition, record.offset)),
            at_ms=record.at_ms,
            session=key.decode("utf-8", "replace"),
            gist=gist,
            entry=raw,
            withheld=is_withheld,
        )


def _withholding(engine: Engine, key: bytes) -> Withholding:
    if split_key(key) is None:
        return Withholding(frozenset())
    with engine.reading(key) as live:
        return withholding(live.session)


def _gist(entry: Entry) -> str:
    what = entry.data_type or entry.kind
    text = entry.summary or entry.label or ""
    if entry.message is not None:
        what = entry.message.role
        text = " ".join(block_text(block, ()) for block in entry.message.content)
    line = " ".join(f"{entry.id} {what}: {text}".split())
    return line if len(line) <= MAX_GIST else line[: MAX_GIST - 1] + "…"
