"""SQLite that stops between two statements: the process dies there, or the disk fails there."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


class Fuse:
    """Counts the statements of every connection opened while it is in place."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.blow: Callable[[], None] = disk_error

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                self.blow()


def disk_error() -> None:
    raise sqlite3.OperationalError("disk I/O error")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def fused() -> Iterator[Fuse]:
    """Let ``fuse.left`` statements through from where it is set on, then blow once."""
    fuse, connect = Fuse(), sqlite3.connect

    class Connection(sqlite3.Connection):
        def execute(self, query: str, values: Any = ()) -> sqlite3.Cursor:
            if query != "ROLLBACK":
                fuse.step()
            return super().execute(query, values)

        def executemany(self, query: str, values: Iterable[Any]) -> sqlite3.Cursor:
            def one_by_one() -> Iterator[Any]:
                for each in values:
                    fuse.step()
                    yield each

            return super().executemany(query, one_by_one())

    def opened(*values: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*values, factory=Connection, **options)
        return connection

    with mock.patch("sqlite3.connect", opened):
        yield fuse


def dies(run: Callable[[], None]) -> bool:
    """Run it in a forked process, which ends with it; say whether it was killed on the way."""
    child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "the child failed otherwise"
    return False
