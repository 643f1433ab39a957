"""The files under watched folders, found by looking: no inotify, so any file system will do."""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ombus.watch.positions import FileId

SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".traj")
_ROTATED: Final = re.compile(r"(?P<origin>.+\.(?:jsonl|ndjson))[.-][0-9][0-9T:._-]*")
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv"})
MAX_DEPTH: Final = 32


class Found(msgspec.Struct, frozen=True):
    """A regular file as it was a moment ago."""

    path: str
    file: FileId
    size: int
    changed_ns: int


def origin_of(path: str) -> str:
    """Return the name a rotated file had: ``a.jsonl`` of ``a.jsonl.1`` and ``a.jsonl-20260501``."""
    found = _ROTATED.fullmatch(path)
    return path if found is None else found["origin"]


def found_under(
    roots: Sequence[Path], known: Collection[FileId], leave_out: Path
) -> Iterator[Found]:
    """Yield files named like transcripts, rotated or not, and known ones whatever they are called.

    A root may be a file. Links to folders are not followed; ``leave_out`` and what cannot be read
    is passed over.
    """
    inodes = {each.inode for each in known}
    seen: set[FileId] = set()
    waiting = [(str(root), 0) for root in roots]
    while waiting:
        path, depth = waiting.pop()
        if not os.path.isdir(path):
            entry = _found(path)
            if entry is not None and entry.file not in seen:
                seen.add(entry.file)
                yield entry
            continue
        if depth > MAX_DEPTH or Path(path) == leave_out:
            continue
        try:
            with os.scandir(path) as entries:
                inside = sorted(entries, key=lambda each: each.name)
        except OSError:
            continue
        for each in inside:
            if each.is_dir(follow_symlinks=False):
                if each.name not in _SKIPPED:
                    waiting.append((each.path, depth + 1))
            elif each.is_file(follow_symlinks=False):
                is_named = each.name.endswith(SUFFIXES) or origin_of(each.name) != each.name
                if not is_named and each.inode() not in inodes:
                    continue
                entry = _found(each.path)
                if entry is None or entry.file in seen:
                    continue
                if is_named or entry.file in known:
                    seen.add(entry.file)
                    yield entry


def _found(path: str) -> Found | None:
    try:
        stat = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return Found(path, FileId(stat.st_dev, stat.st_ino), stat.st_size, stat.st_mtime_ns)
