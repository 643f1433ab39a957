"""An online copy of a data folder that is proved before it is called one."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.runtime.folders import make_private

from ombus.gateway.tokens import FILE as TOKENS
from ombus.gateway.tokens import Tokens
from ombus.operator.databases import open_to_read
from ombus.operator.errors import Misaddressed
from ombus.operator.progress import Tell
from ombus.operator.verification import Verification, verify_folder
from ombus.settings import ProcessSettings
from ombus.wiring import Engine, open_engine

BEFORE: Final = ("watch.db", "supervision/*/state.db", "supervision/log.db")
"""What `ombus watch` and delegations leave in a data folder. It speaks of entries that are on the
log, so it is copied before them, and rows before the log they are folded from."""
AFTER: Final = ("access.db", "grants/log.db", TOKENS)
"""What shared scopes and tokens leave there. A revocation is in the copy if it came before the end
of it."""


class NotEmpty(Misaddressed):
    """The place of the backup holds something."""

    code = "not_empty"

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} is not empty: name a new folder for the backup")
        self.folder = folder


class Copied(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One file, proved against what its source held when the copy of it began."""

    file: str
    """Relative to the folder."""
    rows: int
    """Of all its tables."""
    faults: tuple[str, ...] = ()


class Backup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was copied and how it was proved."""

    folder: str
    n_bytes: int
    files: tuple[Copied, ...]
    """Each by SQLite's own check and the rows of its tables; the memory besides, row by row."""
    verification: Verification

    @property
    def n_rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def n_damaged(self) -> int:
        """Files with a fault."""
        return sum(1 for each in self.files if each.faults)

    @property
    def is_equal(self) -> bool:
        return self.verification.is_equal and not self.n_damaged


def back_up(engine: Engine, settings: ProcessSettings, folder: Path, tell: Tell) -> Backup:
    """Copy what ``engine`` has into the new ``folder`` while others append and fold, and verify it.

    The state is copied before the log, so the copy's log holds all that its state has folded. The
    copy is a data folder: `ombus --data FOLDER` reads it. Its tokens are all revoked: none that is
    revoked later comes back with a copy, and a gateway over it asks for new ones.

    Raises:
        NotEmpty: there is something at ``folder``.
    """
    if folder.exists() and any(folder.iterdir()):
        raise NotEmpty(folder)
    own = (engine.state.path, engine.dead_letters.path, engine.log.path)
    before, after = _there(engine.folder, BEFORE), _there(engine.folder, AFTER)
    copies = [(path, folder / path.relative_to(engine.folder)) for path in (*before, *own, *after)]
    files: list[Copied] = []
    for done, (source, target) in enumerate(copies):
        tell(done, len(copies))
        make_private(target.parent)
        files.append(_copy(source, target, str(target.relative_to(folder))))
    if (folder / TOKENS).exists():
        with closing(Tokens(folder)) as tokens:
            tokens.revoke_all(engine.clock.now())
    copied = msgspec.structs.replace(settings, data=str(folder))
    made = open_engine(copied, owns=False)
    try:
        verification = verify_folder(made)
    finally:
        made.close()
    n_bytes = sum(target.stat().st_size for _, target in copies)
    return Backup(
        folder=str(folder), n_bytes=n_bytes, files=tuple(files), verification=verification
    )


def faults_of(copy: Path, rows_by_table: Mapping[str, int]) -> tuple[str, ...]:
    """Return what is wrong with a copied file: its pages, or tables that lack rows or have more."""
    try:
        with closing(open_to_read(copy, is_still=True)) as database:
            said = [str(fact) for (fact,) in database.execute("PRAGMA integrity_check")]
            found = _rows_by_table(database)
    except sqlite3.DatabaseError as error:
        return (str(error),)
    faults = [fact for fact in said if fact != "ok"]
    for table in sorted({*rows_by_table, *found}):
        n_wanted, n_found = rows_by_table.get(table, 0), found.get(table, 0)
        if n_wanted != n_found:
            faults.append(f"table {table} has {n_found:,} rows, its source had {n_wanted:,}")
    return tuple(faults)


def _there(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _copy(source: Path, target: Path, name: str) -> Copied:
    target.touch(mode=source.stat().st_mode & 0o777)  # who may not read one may not read the other
    with closing(open_to_read(source)) as origin, closing(sqlite3.connect(target)) as copy:
        origin.execute("BEGIN")  # What is counted and what is copied is one snapshot.
        counted = _rows_by_table(origin)
        origin.backup(copy, pages=1_024)
    faults = faults_of(target, counted)
    return Copied(file=name, rows=sum(counted.values()), faults=faults)


def _rows_by_table(database: sqlite3.Connection) -> dict[str, int]:
    named = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    counted: dict[str, int] = {}
    for (table,) in named:
        quoted = str(table).replace('"', '""')
        ((counted[table],),) = database.execute(f'SELECT count(*) FROM "{quoted}"')
    return counted
