"""Who folds a folder: one process at a time, for as long as it lives."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from ombus_streams.engine.embedded.errors import AlreadyOwned
from ombus_streams.runtime.folders import make_private


class Ownership:
    """The right to fold what lies in ``folder``; everybody else may read.

    The kernel gives it back when the process ends, however it ends, so nothing is ever to be
    cleaned up by hand. It keeps two folding processes from wasting each other's work; that no
    old owner does harm is the compare in ``StateStore.commit``, not this lock.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "owner.lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Become the owner, or fail at once. Idempotent while owned.

        Raises:
            AlreadyOwned: another process, or another handle of this one, is the owner.
        """
        if self._descriptor is not None:
            return
        make_private(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise AlreadyOwned(self.path, owner) from error
        # The number is evidence for the next one who asks; only the lock decides.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the right back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
