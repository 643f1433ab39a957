"""Folders of transcripts, followed: a round looks at every file and appends what is settled.

A round is bounded by what has been written since the last one. Appends are acknowledged before a
position moves; between two appends the watcher may be killed, and reads those rows again.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec
import structlog
from ombus_schemas.ids import session_key
from ombus_streams.runtime.errors import RuntimeFault

from ombus.operator.desk import Desk
from ombus.operator.errors import Unanswered
from ombus.operator.intake import Taker, import_file
from ombus.watch.content import content_of
from ombus.watch.follower import Follower
from ombus.watch.positions import FileId, Position, Positions
from ombus.watch.scan import Found, found_under, origin_of
from ombus.watch.succession import as_content, at_end, still_holds, succeeding
from ombus.watch.telling import log_read, tell_rows

_SOON_S: Final = 0.2
MAX_OPEN: Final = 64
"""Files kept open; another one is read from its beginning when it grows."""
MAX_ROWS: Final = 2_000_000
"""Rows of open files in memory, about 130 bytes each."""

_log = structlog.get_logger("ombus.watch")


class Seen(msgspec.Struct):
    """A file as it was in the last round."""

    size: int
    changed_ns: int
    quiet_since: float
    """When it changed last, by the watcher's clock."""
    is_waiting: bool = False
    """Something of it is not told yet, or could not be appended."""
    is_ignored: bool = False
    """Nothing in it looks like a transcript."""


class Round(msgspec.Struct):
    """What a round came to."""

    files: int = 0
    entries: int = 0
    is_moved: bool = False
    is_pending: bool = False
    """A document waits until nobody writes it."""


class Watcher:
    """See the module. ``settle_seconds``: so long nobody writes before what waits is told."""

    def __init__(
        self,
        desk: Desk,
        roots: Sequence[Path],
        *,
        settle_seconds: float,
        backfill: bool = False,
        stop: threading.Event | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._desk = desk
        self._roots = [root.resolve() for root in roots]
        self._settle_seconds, self._now = settle_seconds, now
        self._stop = stop or threading.Event()
        self._positions = Positions(desk.settings.folder)
        self._known = {file for file, _ in self._positions.all()}
        self._followers: dict[FileId, Follower] = {}
        self._seen: dict[FileId, Seen] = {}
        self._begin(backfill)

    def round(self) -> Round:
        """Look at every file once."""
        result = Round()
        found = list(found_under(self._roots, self._known, self._desk.settings.folder))
        present = {each.file for each in found}
        for file in [file for file in self._followers if file not in present]:
            self._vanished(file, result)
        for each in found:
            if each.file not in self._known and origin_of(each.path) != each.path:
                self._adopt(each)
        # A file that was followed before its place was taken comes before the one that took it.
        for each in sorted(found, key=self._order):
            if self._stop.is_set():
                break
            result.files += 1
            try:
                self._look(each, result)
            except (OSError, Unanswered, RuntimeFault) as error:
                self._drop(each.file)
                if (seen := self._seen.get(each.file)) is not None:
                    seen.is_waiting = True
                _log.warning("file.failed", path=each.path, error=str(error))
        self._seen = {file: seen for file, seen in self._seen.items() if file in present}
        self._bound()
        return result

    def run(self, interval_seconds: float, *, is_once: bool = False) -> None:
        """Follow the folders until told to stop, or (``is_once``) until there is nothing to tell.

        While nobody else folds the data folder, this does, and runs its workers when no file grows.
        """
        is_owed = False
        _log.info("watch.started", roots=list(map(str, self._roots)), n_files=len(self._known))
        while not self._stop.is_set():
            result = self.round()
            is_owed = is_owed or result.entries > 0
            is_over = is_once and not result.is_moved and not result.is_pending
            try:
                if is_owed and (not result.is_moved or is_over):
                    self._desk.settle()
                    is_owed = False
                self._desk.release()
            except (Unanswered, RuntimeFault) as error:
                _log.warning("owner.unanswering", error=str(error))
            if is_over:
                break
            self._stop.wait(min(interval_seconds, _SOON_S) if is_once else interval_seconds)
        _log.info("watch.stopped", n_files=len(self._known))

    def close(self) -> None:
        """Close the files. What waits is read again by the next watcher."""
        for file in list(self._followers):
            self._drop(file)
        self._positions.close()

    def _begin(self, backfill: bool) -> None:
        """Leave out what is in folders that nobody watched before, or take it in after all."""
        for file, position in self._positions.all():
            is_last = all(
                other.generation <= position.generation
                for _, other in self._positions.of_origin(position.origin)
            )
            if not is_last and not Path(position.path).exists():
                self._positions.forget(file)
        fresh = [root for root in self._roots if not self._positions.knows_root(root)]
        if backfill:
            for file, position in self._positions.all():
                if position.start and position.generation == 0:
                    again = msgspec.structs.replace(
                        position, start=0, offset=0, line=1, changed_ns=0, fingerprint=b"", tip=None
                    )
                    self._positions.put(file, again)
        else:
            for each in found_under(fresh, (), self._desk.settings.folder):
                if each.file not in self._known:
                    self._leave_out(each)
        self._positions.add_roots(fresh)

    def _leave_out(self, found: Found) -> None:
        try:
            with open(found.path, "rb") as file:
                position = at_end(found, file)
        except OSError as error:
            _log.warning("file.failed", path=found.path, error=str(error))
            return
        self._put(found.file, position)

    def _order(self, found: Found) -> tuple[bool, bool, int]:
        is_rotated = origin_of(found.path) != found.path
        return found.file not in self._known, not is_rotated, found.changed_ns

    def _adopt(self, found: Found) -> None:
        """Take a copy that was made before a file was cut for that file as it was."""
        try:
            with open(found.path, "rb") as file:
                for _, position in self._positions.of_origin(origin_of(found.path)):
                    if position.offset and still_holds(file, found, position):
                        copied = msgspec.structs.replace(position, path=found.path)
                        self._put(found.file, copied)
                        return
        except OSError as error:
            _log.warning("file.failed", path=found.path, error=str(error))

    def _look(self, found: Found, result: Round) -> None:
        now, seen = self._now(), self._seen.get(found.file)
        if seen is None:
            age = max(0.0, time.time() - found.changed_ns / 1e9)
            seen = Seen(found.size, found.changed_ns, now - age)
            self._seen[found.file] = seen
        elif (seen.size, seen.changed_ns) != (found.size, found.changed_ns):
            seen.size, seen.changed_ns, seen.quiet_since = found.size, found.changed_ns, now
            seen.is_ignored = False
        elif seen.is_ignored or not seen.is_waiting:
            return
        is_quiet = now - seen.quiet_since >= self._settle_seconds
        position = self._positions.get(found.file)
        if position is not None and position.is_whole:
            seen.is_waiting = self._whole(found, position, result)
            result.is_pending = result.is_pending or seen.is_waiting
            return
        follower = self._followers.get(found.file)
        if follower is None:
            file = self._opened(found)
            if file is None:
                return
            follower = self._follow(found, file, position, result)
            if follower is None:
                again = self._positions.get(found.file)
                seen.is_waiting = again is not None and again.is_whole
                seen.is_ignored = not seen.is_waiting
                result.is_pending = result.is_pending or seen.is_waiting
                return
        elif not still_holds(follower.file, found, follower.position):
            self._finish(found.file, follower, result)
            seen.is_waiting = True
            self._look(found, result)
            return
        self._advance(found.file, follower, result, is_quiet=is_quiet)
        seen.is_waiting = follower.is_waiting or (follower.has_tail and not is_quiet)

    def _opened(self, found: Found) -> IO[bytes] | None:
        file = open(found.path, "rb")  # noqa: SIM115 (the follower closes it)
        stat = msgspec.structs.replace(found.file, inode=_inode(file))
        if stat != found.file:
            file.close()
            return None
        return file

    def _follow(
        self, found: Found, file: IO[bytes], position: Position | None, result: Round
    ) -> Follower | None:
        """Return who follows a file from now on, ``None`` if there is nothing to follow yet."""
        try:
            is_same = position is None or still_holds(file, found, position)
            if position is not None and not is_same and position.path != found.path:
                # Another file has got the number of one that is gone.
                self._positions.forget(found.file)
                position = None
            if position is not None and not is_same:
                _log.info("file.truncated", path=found.path, offset=position.offset)
                position = succeeding(found, file, position)
            elif position is None:
                position = succeeding(found, file, self._predecessor(found, result))
            elif position.format is None:
                position = as_content(position, content_of(file))
            if position is None:
                file.close()
                return None
            if position.path != found.path:
                _log.info("file.renamed", path=found.path, origin=position.origin)
                position = msgspec.structs.replace(position, path=found.path)
            self._put(found.file, position)
            if position.is_whole:
                file.close()
                return None
            follower = Follower(file, position, self._desk.settings.tenant)
        except BaseException:
            file.close()
            raise
        self._followers[found.file] = follower
        return follower

    def _predecessor(self, found: Found, result: Round) -> Position | None:
        """Return what was followed under this path before, read to its end."""
        origin = origin_of(found.path)
        before = self._positions.of_origin(origin)
        if not before:
            return None
        file, position = max(before, key=lambda each: (each[1].generation, each[1].path == origin))
        follower = self._followers.get(file)
        if follower is not None:
            self._advance(file, follower, result, is_quiet=True)
            position = follower.position
        return position

    def _whole(self, found: Found, position: Position, result: Round) -> bool:
        """Read a document again if it changed and is complete; say whether that must wait."""
        if position.changed_ns == found.changed_ns:
            return False
        if self._now() - self._seen[found.file].quiet_since < min(1.0, self._settle_seconds):
            return True
        for intake in import_file(self._desk, Path(found.path)):
            result.entries += intake.entries
            result.is_moved = result.is_moved or intake.entries > 0
            log_read(found.path, intake.session, intake.entries, intake.duplicates)
        self._put(
            found.file,
            msgspec.structs.replace(
                position, path=found.path, offset=found.size, changed_ns=found.changed_ns
            ),
        )
        return False

    def _finish(self, file: FileId, follower: Follower, result: Round) -> None:
        """Tell what waited of a content that is gone."""
        if follower.cut():
            self._tell(file, follower, result, is_quiet=True, is_cut=True)
        self._drop(file)

    def _vanished(self, file: FileId, result: Round) -> None:
        """Read a file to its end that has no name any more, or one outside."""
        follower = self._followers[file]
        try:
            self._advance(file, follower, result, is_quiet=True)
        except (OSError, Unanswered, RuntimeFault) as error:
            _log.warning("file.failed", path=follower.position.path, error=str(error))
            return
        _log.info("file.gone", path=follower.position.path)
        self._drop(file)

    def _advance(self, file: FileId, follower: Follower, result: Round, *, is_quiet: bool) -> None:
        follower.read(self._holds, is_quiet=is_quiet)
        self._tell(file, follower, result, is_quiet=is_quiet)
        follower.remember()

    def _tell(
        self,
        file: FileId,
        follower: Follower,
        result: Round,
        *,
        is_quiet: bool,
        is_cut: bool = False,
    ) -> None:
        def put(position: Position) -> None:
            self._put(file, position)

        for transcript in follower.transcripts:
            told = tell_rows(
                self._desk, follower, transcript, put, self._stop, is_quiet=is_quiet, is_cut=is_cut
            )
            result.entries += told.n_entries
            result.is_moved = result.is_moved or told.n_rows > 0

    def _holds(self, session: str, entry_id: str) -> bool:
        key = session_key(self._desk.settings.tenant, session)
        with Taker(self._desk, key) as taker:
            return taker.holds(entry_id)

    def _put(self, file: FileId, position: Position) -> None:
        self._positions.put(file, position)
        self._known.add(file)

    def _drop(self, file: FileId) -> None:
        follower = self._followers.pop(file, None)
        if follower is not None:
            follower.close()

    def _bound(self) -> None:
        """Close the files that have been quiet longest, until the rest fit."""
        oldest = sorted(self._followers, key=self._quiet_since)
        n_rows = sum(each.n_rows for each in self._followers.values())
        while oldest and (len(self._followers) > MAX_OPEN or n_rows > MAX_ROWS):
            file = oldest.pop(0)
            n_rows -= self._followers[file].n_rows
            self._drop(file)

    def _quiet_since(self, file: FileId) -> float:
        seen = self._seen.get(file)
        return seen.quiet_since if seen is not None else 0.0


def _inode(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_ino
