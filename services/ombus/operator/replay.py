"""Copying records from one log into another: how an embedded user moves to Kafka, and back.

Order within a session stays, ids stay, the original append time goes along. What opens a log
(``om.log.created``) is never copied. Each copy names the record it was made from, so a replay that
was killed goes on where the target ends, without a record twice.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from ombus_schemas.headers import APPENDED_AT, replayed
from ombus_streams.runtime.folders import make_private
from ombus_streams.runtime.ports import Draft, LogRecord

from ombus.operator.errors import Misaddressed
from ombus.operator.progress import Tell, untold

REPLAYED_FROM: Final = "ombus-replayed-from"
"""Header of a copy: the position of its original."""
SYSTEM_KEY: Final = b"_system/log"
MAX_BATCH: Final = 500
MAX_BATCH_BYTES: Final = 1_048_576
BATCHES_A_SECOND: Final = 10
"""How finely a paced replay is spread."""


class BadSelection(Misaddressed):
    """A range or a session that makes no sense here."""

    code = "bad_selection"


class SameLog(Misaddressed):
    """Source and target are one log."""

    code = "same_log"

    def __init__(self, incarnation: str) -> None:
        super().__init__(f"source and target are both log {incarnation}: name another target")


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets of one partition, the last one excluded."""

    partition: int
    first: int
    end: int


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are copied; what is not restricted is copied whole."""

    sessions: tuple[str, ...] = ()
    """Keys, ``tenant/session``."""
    ranges: tuple[OffsetRange, ...] = ()
    """If there are any, only these partitions."""
    since_ms: int | None = None
    """Append time, included."""
    until_ms: int | None = None
    """Append time, excluded."""

    def takes(self, record: LogRecord) -> bool:
        if self.since_ms is not None and record.at_ms < self.since_ms:
            return False
        if self.until_ms is not None and record.at_ms >= self.until_ms:
            return False
        if self.ranges and not any(
            each.partition == record.partition and each.first <= record.offset < each.end
            for each in self.ranges
        ):
            return False
        return not self.sessions or (record.key or b"").decode("utf-8", "replace") in self.sessions


class Marks:
    """Offsets of the source that the target has; a bit each."""

    def __init__(self) -> None:
        self._bits: dict[int, bytearray] = {}

    def add(self, partition: int, offset: int) -> None:
        bits = self._bits.setdefault(partition, bytearray())
        if offset // 8 >= len(bits):
            bits.extend(bytes(max(offset // 8 + 1 - len(bits), len(bits))))
        bits[offset // 8] |= 1 << offset % 8

    def __contains__(self, place: tuple[int, int]) -> bool:
        bits = self._bits.get(place[0], b"")
        return place[1] // 8 < len(bits) and bool(bits[place[1] // 8] >> place[1] % 8 & 1)


class Source(Protocol):
    """Where records come from."""

    @property
    def incarnation(self) -> str: ...

    def count(self, after: dict[int, int]) -> int:
        """Return how many records there are from the offsets ``after`` on."""
        ...

    def records(self, after: dict[int, int]) -> Iterator[LogRecord]:
        """Yield them in order of append time; in order of offset within a partition."""
        ...


class Target(Protocol):
    """Where copies go."""

    @property
    def incarnation(self) -> str: ...

    def reaches(self, seen: dict[int, int]) -> bool:
        """Say whether what was seen before is still there, so that it need not be read again."""
        ...

    def copied(self, source: str, seen: dict[int, int]) -> Marks:
        """Return what it has of the source; ``seen`` is moved to where it was looked through."""
        ...

    def append(self, originals: Sequence[LogRecord], drafts: Sequence[Draft]) -> None:
        """Append durably."""
        ...


class Replayed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it."""

    copied: int
    already_there: int
    """Found in the target: an earlier run copied them."""
    left_behind: int
    """Without key or value: they never were entries."""
    sessions: int
    """Of which something was copied now."""


class _Progress(msgspec.Struct):
    """How far a replay came; a hint, since the target knows it all, that spares reading it."""

    source: str
    target: str
    selection: str
    after: dict[int, int] = {}
    """Everything selected below is in the target."""
    seen: dict[int, int] = {}
    """How far the target has been looked through for copies."""


def replay(
    source: Source,
    target: Target,
    selection: Selection,
    progress_folder: Path,
    *,
    rate: float | None = None,
    tell: Tell = untold,
) -> Replayed:
    """Copy what is selected, up to the end as it is now; at most ``rate`` records a second.

    May be killed and run again, and run again later for what has come since.

    Raises:
        SameLog: there is nothing to copy from a log into itself.
    """
    if source.incarnation == target.incarnation:
        raise SameLog(source.incarnation)
    progress, file = _progress(source, target, selection, progress_folder)
    marks = target.copied(source.incarnation, progress.seen)
    total, started = source.count(progress.after), time.monotonic()
    counts = {"done": 0, "copied": 0, "there": 0, "left": 0}
    sessions: set[bytes] = set()
    batch: list[LogRecord] = []
    n_bytes = 0
    after = dict(progress.after)
    max_batch = MAX_BATCH if rate is None else max(1, min(MAX_BATCH, int(rate / BATCHES_A_SECOND)))

    def flush() -> None:
        nonlocal n_bytes
        if batch:
            target.append(batch, [_copy(record, source.incarnation) for record in batch])
            counts["copied"] += len(batch)
            batch.clear()
            n_bytes = 0
        progress.after = dict(after)
        file.write_bytes(msgspec.json.encode(progress))
        tell(counts["done"], total)
        if rate is not None:
            ahead = counts["copied"] / rate - (time.monotonic() - started)
            time.sleep(max(0.0, ahead))

    for record in source.records(progress.after):
        counts["done"] += 1
        if record.key != SYSTEM_KEY and selection.takes(record):
            if (record.partition, record.offset) in marks:
                counts["there"] += 1
            elif record.key is None or record.value is None:
                counts["left"] += 1
            else:
                sessions.add(record.key)
                batch.append(record)
                n_bytes += len(record.value)
        after[record.partition] = record.offset + 1
        if len(batch) >= max_batch or n_bytes >= MAX_BATCH_BYTES:
            flush()
    flush()
    return Replayed(
        copied=counts["copied"],
        already_there=counts["there"],
        left_behind=counts["left"],
        sessions=len(sessions),
    )


def _progress(
    source: Source, target: Target, selection: Selection, folder: Path
) -> tuple[_Progress, Path]:
    chosen = hashlib.sha256(msgspec.json.encode(selection)).hexdigest()[:16]
    file = folder / f"{source.incarnation}-{target.incarnation}-{chosen}.json"
    make_private(folder)
    fresh = _Progress(source=source.incarnation, target=target.incarnation, selection=chosen)
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_Progress)
    except (OSError, msgspec.DecodeError):
        # Killed while it was written: the target knows the same.
        return fresh, file
    return (found if target.reaches(found.seen) else fresh), file


def _copy(record: LogRecord, incarnation: str) -> Draft:
    assert record.key is not None
    assert record.value is not None
    position = f"{incarnation}:{record.partition}:{record.offset}"
    kept = tuple(
        item
        for item in replayed(record.headers, record.at_ms)
        if item[0] not in (APPENDED_AT, REPLAYED_FROM)
    )
    return Draft(
        key=record.key,
        value=record.value,
        headers=(*kept, (REPLAYED_FROM, position.encode())),
        at_ms=record.at_ms,
    )
