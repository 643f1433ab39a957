"""A log as files: compressed segments with their hashes, made again into a log when it is needed.

A segment holds records of one partition, in order, as they lie on the log: gzip over frames of
four bytes of length and a record in MessagePack, ``[offset, at_ms, key, value, [[name, value]]]``.
``archive.json`` names the segments; one that it does not name is not there. Archiving again goes on
where the last segment ends. Restoring is a replay, with what a replay promises.
"""

import gzip
import hashlib
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.runtime.pages import pages
from ombus_streams.runtime.ports import EntryLog, LogRecord

from ombus.operator.depot import Depot, NotThere
from ombus.operator.errors import Misaddressed, OperatorError
from ombus.operator.progress import Tell, untold

MANIFEST: Final = "archive.json"
SEGMENT_BYTES: Final = 16 * 1_048_576
"""Of records, before compression."""
FORMAT: Final = 1
_LENGTH_BYTES: Final = 4
_LEVEL: Final = 6
_PAGE: Final = 1_000


class OtherArchive(Misaddressed):
    """The place holds the archive of another log, or of none."""

    code = "other_archive"


class Gap(OperatorError):
    """The log has lost records that the archive does not have."""

    code = "gap"


class DamagedArchive(OperatorError):
    """A segment is not what the manifest says."""

    code = "damaged"


class Segment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One file of an archive."""

    name: str
    partition: int
    first_offset: int
    next_offset: int
    n_records: int
    n_bytes: int
    sha256: str
    from_ms: int
    to_ms: int


class Archive(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The manifest."""

    format: int
    incarnation: str
    """Of the log it was made from."""
    topic: str
    partitions: int
    segments: tuple[Segment, ...]
    """In order within a partition."""

    @property
    def n_records(self) -> int:
        return sum(each.n_records for each in self.segments)

    @property
    def n_bytes(self) -> int:
        return sum(each.n_bytes for each in self.segments)


class Archived(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one run has added."""

    n_new_records: int
    n_new_segments: int
    n_records: int
    n_bytes: int
    n_segments: int


class _Record(msgspec.Struct, frozen=True, array_like=True):
    offset: int
    at_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Record).decode


def archive(
    depot: Depot,
    log: EntryLog,
    topic: str,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    tell: Tell = untold,
) -> Archived:
    """Archive what the log has by now and the archive has not; each segment is read back.

    May be killed and run again.

    Raises:
        OtherArchive: the place holds another log's.
        Gap: the log's start has moved past the end of the archive.
        DepotFailed: see its way out; what is named in the manifest stands.
    """
    held = _held(depot, log, topic)
    n_new = n_segments = 0
    places = [(each, _next(held, log, each), log.end(each)) for each in range(log.partitions)]
    total = sum(end - offset for _, offset, end in places)
    for partition, begin, end in places:
        offset = begin
        while segment := _write(depot, log, partition, offset, end, segment_bytes):
            held = msgspec.structs.replace(held, segments=(*held.segments, segment))
            depot.write(MANIFEST, msgspec.json.encode(held))
            offset, n_segments = segment.next_offset, n_segments + 1
            n_new += segment.n_records
            tell(n_new, total)
    return Archived(
        n_new_records=n_new,
        n_new_segments=n_segments,
        n_records=held.n_records,
        n_bytes=held.n_bytes,
        n_segments=len(held.segments),
    )


def opened(depot: Depot) -> Archive:
    """Return the manifest.

    Raises:
        NotThere: there is none.
        OtherArchive: it is no manifest of a format that this version reads.
    """
    try:
        found = msgspec.json.decode(depot.read(MANIFEST), type=Archive)
    except msgspec.DecodeError as error:
        raise OtherArchive(f"{depot.name}: {MANIFEST} is no manifest: {error}") from error
    if found.format != FORMAT:
        raise OtherArchive(
            f"{depot.name} is of format {found.format}, this version reads {FORMAT}: upgrade ombus"
        )
    return found


def check(depot: Depot, tell: Tell = untold) -> Archive:
    """Read every segment and return the manifest, which then is true.

    Raises:
        DamagedArchive: a segment is lost or changed, or one does not follow the other.
    """
    found, done = opened(depot), 0
    ends: dict[int, int] = {}
    for segment in found.segments:
        if ends.get(segment.partition, segment.first_offset) != segment.first_offset:
            raise DamagedArchive(
                f"{depot.name}: {segment.name} begins at {segment.first_offset:,}, the segment "
                f"before it ends at {ends[segment.partition]:,}"
            )
        ends[segment.partition] = segment.next_offset
        done += sum(1 for _ in records_of(depot, segment))
        tell(done, found.n_records)
    return found


def records_of(depot: Depot, segment: Segment) -> Iterator[LogRecord]:
    """Yield the records of a segment, after its hash was compared.

    Raises:
        DamagedArchive: it is not what was written.
    """
    try:
        value = depot.read(segment.name)
    except NotThere as error:
        raise DamagedArchive(f"{error}: the archive has lost a segment") from error
    if hashlib.sha256(value).hexdigest() != segment.sha256:
        raise DamagedArchive(
            f"{depot.name}: {segment.name} is not what was written: restore it from a copy"
        )
    with gzip.GzipFile(fileobj=io.BytesIO(value)) as file:
        while length := file.read(_LENGTH_BYTES):
            record = _decode(file.read(int.from_bytes(length, "big")))
            yield LogRecord(
                partition=segment.partition,
                offset=record.offset,
                key=record.key,
                value=record.value,
                headers=record.headers,
                at_ms=record.at_ms,
            )


def log_records(log: EntryLog, partition: int, offset: int, end: int) -> Iterator[LogRecord]:
    """Yield the records of a partition from ``offset`` to ``end``."""
    for page in pages(log, partition, offset, end, _PAGE):
        yield from page


def _held(depot: Depot, log: EntryLog, topic: str) -> Archive:
    try:
        held = opened(depot)
    except NotThere:
        return Archive(
            format=FORMAT,
            incarnation=log.incarnation,
            topic=topic,
            partitions=log.partitions,
            segments=(),
        )
    if held.incarnation != log.incarnation:
        raise OtherArchive(
            f"{depot.name} holds log {held.incarnation} ({held.topic}), this one is "
            f"{log.incarnation}: name another place"
        )
    return held


def _next(held: Archive, log: EntryLog, partition: int) -> int:
    start = log.start(partition)
    mine = [each.next_offset for each in held.segments if each.partition == partition]
    if not mine:
        return start
    if start > mine[-1]:
        raise Gap(
            f"partition {partition}: the archive ends at {mine[-1]:,}, the log starts at "
            f"{start:,}: what lay between is lost; archive the rest to another place"
        )
    return mine[-1]


def _write(
    depot: Depot, log: EntryLog, partition: int, offset: int, end: int, segment_bytes: int
) -> Segment | None:
    name = f"{partition:05d}/{offset:020d}.gz"
    n_bytes = n_records = 0
    first: LogRecord | None = None
    last: LogRecord | None = None
    with tempfile.TemporaryDirectory(prefix="ombus-archive-") as scratch:
        path = Path(scratch) / "segment"
        with path.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
            for record in log_records(log, partition, offset, end):
                frame = _encode(
                    _Record(
                        record.offset, record.at_ms, record.key, record.value, tuple(record.headers)
                    )
                )
                file.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
                first, last = first or record, record
                n_records += 1
                n_bytes += len(frame)
                if n_bytes >= segment_bytes:
                    break
        if first is None or last is None:
            return None
        written = path.read_bytes()
        depot.put(name, path)
    digest = hashlib.sha256(written).hexdigest()
    if hashlib.sha256(depot.read(name)).hexdigest() != digest:
        raise DamagedArchive(f"{depot.name}: {name} reads otherwise than it was written: try again")
    return Segment(
        name=name,
        partition=partition,
        first_offset=offset,
        next_offset=last.offset + 1,
        n_records=n_records,
        n_bytes=len(written),
        sha256=digest,
        from_ms=first.at_ms,
        to_ms=last.at_ms,
    )
