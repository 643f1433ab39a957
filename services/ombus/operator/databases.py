"""SQLite files that are looked at and never written."""

import sqlite3
from pathlib import Path


def open_to_read(path: Path, *, is_still: bool = False) -> sqlite3.Connection:
    """Return a connection that reads the file at ``path``, whatever characters are in that path.

    ``is_still``: nobody writes it meanwhile, so that no ``-wal`` or ``-shm`` is made beside it.

    Raises:
        sqlite3.Error: there is no such file, or it cannot be read.
    """
    # Bare, `#`, `?` and `%` of the path would be the URI's.
    uri = f"{path.absolute().as_uri()}?mode=ro" + ("&immutable=1" if is_still else "")
    return sqlite3.connect(uri, uri=True, isolation_level=None)
