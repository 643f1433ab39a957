"""Checkpoints of rows folded from Kafka: a start for a new machine that is not the log's start.

One of a partition is its files, each stored once under its hash, and a manifest that names them
with position, incarnation and fold version. The manifest is written last: without it there is no
checkpoint. Restoring is copying them back; the worker folds the tail.

``<incarnation>/<role>-v<version>/<partition>/<next offset>.json`` and ``…/files/<sha256>``
"""

import hashlib
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.folders import make_private
from ombus_streams.runtime.ports import PositionRow

from ombus.operator.depot import Depot
from ombus.operator.errors import Busy, Misaddressed, OperatorError
from ombus.operator.progress import Tell, untold
from ombus.wiring_state import (
    FOLD_VERSION,
    is_in_use,
    partitions_in,
    still_database,
    still_rows,
)

KEEP: Final = 3
"""Checkpoints of a partition that stay; their files are shared, so each costs what has changed."""
_MANIFEST: Final = ".json"
_CHUNK: Final = 1 << 20
_PARTITION_DIGITS: Final = 5
_OFFSET_DIGITS: Final = 20
_NAMED_BY_CONTENT: Final = ".sst"


class NoCheckpoint(Misaddressed):
    """Nothing to start from."""

    code = "no_checkpoint"


class Occupied(Misaddressed):
    """There are rows where the checkpoint should go."""

    code = "occupied"


class Damaged(OperatorError):
    """A file is not what its manifest says."""

    code = "damaged"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One file of a checkpoint."""

    name: str
    n_bytes: int
    sha256: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A partition at one position; what is written as its manifest."""

    role: str
    topic: str
    position: PositionRow
    """Incarnation, partition, next offset, fold version, and hash and time of the last record."""
    taken_at: datetime
    parts: tuple[Part, ...]

    @property
    def n_bytes(self) -> int:
        return sum(part.n_bytes for part in self.parts)

    @property
    def partition(self) -> int:
        return self.position.partition


class Saved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of saving one partition."""

    checkpoint: Checkpoint
    n_new_bytes: int
    """Of files that the depot did not have."""


def save(
    depot: Depot,
    folder: Path,
    role: str,
    topic: str,
    now: datetime,
    *,
    keep: int = KEEP,
    tell: Tell = untold,
) -> list[Saved]:
    """Save every partition in ``folder`` that has a position, while it is folded or not.

    Raises:
        NoCheckpoint: there are no rows.
        StoreError, DepotFailed: see their way out; partitions before it are saved.
    """
    partitions = partitions_in(folder)
    saved: list[Saved] = []
    for done, partition in enumerate(partitions):
        tell(done, len(partitions))
        with still_database(folder, partition) as (files, position):
            if position is not None:
                saved.append(_save(depot, files, role, topic, position, now))
                _forget_old(depot, saved[-1].checkpoint, keep)
    if not saved:
        raise NoCheckpoint(f"{folder} holds no rows: name the instance and role of a worker")
    return saved


def listed(depot: Depot, incarnation: str | None = None) -> list[Checkpoint]:
    """Return the checkpoints there are, of one log or of all, oldest first a partition."""
    names = [
        name
        for name in depot.names("" if incarnation is None else incarnation)
        if name.endswith(_MANIFEST)
    ]
    return [_read(depot, name) for name in names]


def newest(depot: Depot, incarnation: str, role: str) -> dict[int, Checkpoint]:
    """Return the newest checkpoint of each partition that this fold can go on from."""
    found: dict[int, Checkpoint] = {}
    for name in depot.names(f"{incarnation}/{role}-v{FOLD_VERSION}"):
        if name.endswith(_MANIFEST):
            each = _read(depot, name)
            found[each.partition] = each
    return found


def restore(depot: Depot, checkpoint: Checkpoint, folder: Path, *, replace: bool = False) -> None:
    """Let ``folder`` hold the partition as it was saved: proved, then put there at once.

    Raises:
        Occupied: it holds rows of the partition, and ``replace`` is not said.
        Busy: a worker folds them.
        Damaged: a file is not what was saved; nothing was put there.
        NotThere, DepotFailed: see their way out.
    """
    target = folder / f"{checkpoint.partition:0{_PARTITION_DIGITS}d}"
    if target.exists():
        if not replace:
            raise Occupied(
                f"{target} holds rows already: name another --instance, or say --replace"
            )
        if is_in_use(folder):
            raise Busy("a restore", folder, "of a worker")
    fetched = folder.with_name(f".{folder.name}-restoring")
    part = fetched / target.name
    shutil.rmtree(fetched, ignore_errors=True)
    make_private(part)
    try:
        for each in checkpoint.parts:
            depot.fetch(_file(checkpoint, each), part / each.name)
            if _hash(part / each.name) != each.sha256:
                raise Damaged(
                    f"{depot.name}: {_file(checkpoint, each)} is not what was saved: "
                    "restore an older checkpoint, or fold from the log"
                )
        _prove(fetched, checkpoint, depot)
        if target.exists():
            shutil.rmtree(target)
        make_private(folder)
        part.rename(target)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


def _save(
    depot: Depot, files: Path, role: str, topic: str, position: PositionRow, now: datetime
) -> Saved:
    paths = sorted(files.iterdir())
    checkpoint = Checkpoint(
        role=role,
        topic=topic,
        position=position,
        taken_at=now.astimezone(UTC),
        parts=tuple(
            Part(name=path.name, n_bytes=path.stat().st_size, sha256=_hash(path)) for path in paths
        ),
    )
    there = {*depot.names(f"{_place(checkpoint)}/files")}
    n_new_bytes = 0
    for path, part in zip(paths, checkpoint.parts, strict=True):
        name = _file(checkpoint, part)
        if name not in there:
            depot.put(name, path, may_link=path.suffix == _NAMED_BY_CONTENT)
            n_new_bytes += part.n_bytes
    depot.write(_manifest(checkpoint), msgspec.json.encode(checkpoint))
    return Saved(checkpoint=checkpoint, n_new_bytes=n_new_bytes)


def _forget_old(depot: Depot, newest: Checkpoint, keep: int) -> None:
    """Delete what more than ``keep`` checkpoints hold; the manifests first."""
    names = depot.names(_place(newest))
    manifests = [name for name in names if name.endswith(_MANIFEST)]
    kept, old = manifests[-max(1, keep) :], manifests[: -max(1, keep)]
    if not old:
        return
    for name in old:
        depot.delete(name)
    needed = {
        _file(each, part) for each in (_read(depot, name) for name in kept) for part in each.parts
    }
    for name in names:
        if not name.endswith(_MANIFEST) and name not in needed:
            depot.delete(name)


def _prove(folder: Path, checkpoint: Checkpoint, depot: Depot) -> None:
    try:
        with still_rows(folder, checkpoint.partition) as rows:
            position = rows.position()
    except RuntimeFault as error:
        raise Damaged(f"{depot.name}: {error}") from error
    if position != checkpoint.position:
        raise Damaged(
            f"{depot.name}: the files are at {position}, the manifest says {checkpoint.position}: "
            "restore an older checkpoint, or fold from the log"
        )


def _read(depot: Depot, name: str) -> Checkpoint:
    try:
        return msgspec.json.decode(depot.read(name), type=Checkpoint)
    except msgspec.DecodeError as error:
        raise Damaged(f"{depot.name}: {name} is no manifest: {error}") from error


def _place(checkpoint: Checkpoint) -> str:
    at = checkpoint.position
    kind = f"{checkpoint.role}-v{at.fold_version}"
    return f"{at.incarnation}/{kind}/{at.partition:0{_PARTITION_DIGITS}d}"


def _manifest(checkpoint: Checkpoint) -> str:
    offset = f"{checkpoint.position.next_offset:0{_OFFSET_DIGITS}d}"
    return f"{_place(checkpoint)}/{offset}{_MANIFEST}"


def _file(checkpoint: Checkpoint, part: Part) -> str:
    return f"{_place(checkpoint)}/files/{part.sha256}"


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
