"""What is settled of a followed file: appended, and its position moved after each append."""

import threading
from collections.abc import Callable

import msgspec
import structlog
from ombus_schemas.ids import session_key

from ombus.importers.canonical import Imported
from ombus.importers.growing import GrowingTranscript
from ombus.operator.desk import Desk
from ombus.operator.intake import Taker
from ombus.watch.follower import Follower
from ombus.watch.positions import Position

_log = structlog.get_logger("ombus.watch")


class Told(msgspec.Struct, frozen=True):
    """What came of the rows of one session."""

    n_rows: int = 0
    n_entries: int = 0


def tell_rows(
    desk: Desk,
    follower: Follower,
    transcript: GrowingTranscript,
    put: Callable[[Position], None],
    stop: threading.Event,
    *,
    is_quiet: bool,
    is_cut: bool = False,
) -> Told:
    """Append what is settled of a session, and ``put`` the position after each append.

    ``is_cut``: the file holds it no longer, so only what was remembered of it is told.
    """
    if transcript.next_row < 0:
        return Told()
    session = transcript.session_id
    key = session_key(transcript.tenant_id, session)
    desk.catch_up([desk.engine.log.partition_of(key)])
    is_main = transcript is follower.transcripts[0]
    with Taker(desk, key, renames=True) as taker:
        taker.renamed = follower.renamed_by_session.setdefault(session, {})

        def acknowledge() -> None:
            taker.send()
            tip = taker.tip if is_main else None
            moved = follower.told_of_the_cut(tip) if is_cut else follower.told(tip)
            if moved != follower.position:
                put(moved)
                follower.position = moved

        n_rows = 0
        for items in follower.ready(
            transcript, lambda _, entry_id: taker.holds(entry_id), is_quiet=is_quiet
        ):
            n_rows += 1
            for item in items:
                if isinstance(item, Imported):
                    taker.offer(item.entry, item.line)
                elif item.cause == "bad":
                    _log.warning(
                        "line.skipped",
                        path=follower.position.path,
                        line=item.line,
                        reason=item.reason,
                    )
            if taker.is_full:
                acknowledge()
                if stop.is_set():
                    break
        acknowledge()
    for refused in taker.skipped:
        _log.warning(
            "line.refused",
            path=follower.position.path,
            line=refused.line,
            reason=refused.reason,
        )
    if n_rows:
        log_read(
            follower.position.path,
            key.decode(),
            taker.n_entries,
            taker.n_duplicates,
            n_conflicts=taker.n_conflicts,
            line=follower.position.line,
        )
    return Told(n_rows, taker.n_entries)


def log_read(path: str, session: str, n_entries: int, n_duplicates: int, **more: int) -> None:
    """Log the one line of a file that was read."""
    _log.info(
        "file.read",
        path=path,
        session=session,
        n_entries=n_entries,
        n_duplicates=n_duplicates,
        **more,
    )
