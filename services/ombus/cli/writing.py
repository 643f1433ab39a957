"""Commands that append: ``import``, ``append``, ``flush``, ``compact``."""

import sys
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ombus.cli.options import Data, Files, Json, LeafId, SessionName, Tenant
from ombus.cli.output import note, progress, say, say_json
from ombus.cli.shell import caught_up, desk_for, settings_for

if TYPE_CHECKING:
    from ombus.operator.intake import Intake
    from ombus.operator.requests import Compacted, Flushed

MAX_SHOWN = 20
"""Skipped lines and conflicts printed for people; ``--json`` has more."""
CHUNK_BYTES = 1 << 18


def import_files(
    context: typer.Context,
    files: Files,
    session: Annotated[
        str | None,
        typer.Option(
            "--session", "-s", metavar="ID", help="Import as this session, not as the file's own."
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Take this format, not what content says."),
    ] = None,
    work: Annotated[
        bool,
        typer.Option("--work/--no-work", help="Run the workers on it, or leave them for later."),
    ] = True,
    json: Json = False,
    tenant: Tenant = None,
    data: Data = None,
) -> None:
    """Put transcripts onto the log; what is there already is not added again."""
    from ombus.cli.exits import FOUND, KNOWN, code_of, line_of
    from ombus.operator.intake import import_file

    settings = settings_for(context, data, tenant)
    worst = n_appended = 0
    with desk_for(settings, needs_log=False) as desk:
        for path in files:
            n_found = 0
            try:
                with progress(f"importing {path.name}") as tell:
                    for intake in import_file(desk, path, session, format, tell):
                        if json:
                            say_json(intake)
                        else:
                            _say_intake(intake)
                        worst = max(worst, FOUND if intake.n_conflicts else 0)
                        n_appended += intake.entries
                        n_found += intake.lines - intake.n_skipped
                if not n_found:
                    note(f"ombus: {path} holds no line of a transcript: nothing was imported")
                    worst = max(worst, FOUND)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from error
            except KNOWN as error:
                # One file that cannot be read does not keep the others out.
                if not isinstance(error, OSError):
                    raise
                note(_unread(path) or line_of(error))
                worst = max(worst, code_of(error))
        if work:
            n_runs = desk.settle()
        else:
            n_runs = 0
            desk.catch_up()
    if n_runs and not json:
        say(f"workers appended {n_runs:,} results")
    elif work and desk.owns and n_appended and not json:
        say("no run is due yet: `ombus flush` observes what is there now")
    if worst:
        raise typer.Exit(worst)


def _unread(path: Path) -> str | None:
    """Return why nothing at ``path`` can be a transcript, and the way out."""
    if path.is_dir():
        return f"ombus: {path} is a folder: name files, or follow it with `ombus watch {path}`"
    if not path.exists():
        where = path.absolute().parent
        return f"ombus: {path} is not there: there is no such file in {where}, name one that is"
    return None


def append(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="ID or TENANT/ID.")],
    json: Json = False,
    tenant: Tenant = None,
    data: Data = None,
) -> None:
    """Append messages or entries from standard input, one JSON object a line.

    A line is {"role": ..., "content": ...} or an entry. What user, assistant and tool say is
    observed, any other role is kept only. Each line is acknowledged on one of its own, position
    and id, once it is durable; so nothing that was acknowledged can be lost.
    """
    from ombus.cli.exits import FOUND
    from ombus.operator.feed import Feed, NotTaken
    from ombus.operator.lookup import key_named

    settings = settings_for(context, data, tenant)
    n_refused = 0
    with desk_for(settings, needs_log=False) as desk:
        key = key_named(desk, session)
        desk.catch_up([desk.engine.log.partition_of(key)])
        feed = Feed(desk, key)
        desk.release()
        for lines in _batches():
            for answer in feed.take(lines):
                if isinstance(answer, NotTaken):
                    n_refused += 1
                    note(f"ombus: line {answer.line}: {answer.reason}")
                elif json:
                    say_json(answer)
                else:
                    say(f"{answer.position or answer.status} {answer.id}")
    for role, count in feed.kept_only.items():
        note(f"ombus: {count:,} messages of role {role!r} are kept, and no worker reads that role")
    if n_refused:
        raise typer.Exit(FOUND)


def flush(
    context: typer.Context,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Observe, reflect and prune everything up to the leaf, and wait for it."""
    from ombus.cli.exits import FOUND
    from ombus.operator import requests
    from ombus.operator.lookup import chosen_session

    with caught_up(context, data) as desk:
        done = requests.flush(desk, chosen_session(desk, session), leaf)
    if json:
        say_json(done)
    else:
        _say_flush(done)
    if done.failure is not None:
        raise typer.Exit(FOUND)


def compact(
    context: typer.Context,
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Flush, then fold the memory into a compaction, without a model call."""
    from ombus.cli.exits import FOUND
    from ombus.operator import requests
    from ombus.operator.lookup import chosen_session

    with caught_up(context, data) as desk:
        key = chosen_session(desk, session)
        flushed = requests.flush(desk, key, leaf)
        done = requests.compact(desk, key, leaf) if flushed.failure is None else None
    if json:
        say_json({"flush": flushed, "compaction": done})
    else:
        _say_flush(flushed)
        if done is not None:
            _say_compaction(done)
    if done is None or done.failure is not None:
        raise typer.Exit(FOUND)


def _batches() -> Iterator[list[bytes]]:
    """Yield the complete lines that are there, without waiting for more of them."""
    held = b""
    stream = cast(BufferedReader, sys.stdin.buffer)
    while chunk := stream.read1(CHUNK_BYTES):
        *lines, held = (held + chunk).split(b"\n")
        if lines:
            yield lines
    if held:
        yield [held]


def _say_intake(intake: "Intake") -> None:
    say(f"{intake.file}: {intake.format}, session {intake.session}")
    say(
        f"  {intake.lines:,} lines: {intake.entries:,} entries appended, "
        f"{intake.duplicates:,} duplicates on the log already, "
        f"{intake.repeated + intake.merged + intake.left_out:,} lines without an entry of their "
        f"own, {intake.n_skipped:,} skipped"
    )
    for skipped in intake.skipped[:MAX_SHOWN]:
        say(f"  skipped line {skipped.line}: {skipped.reason}")
    if intake.n_skipped > MAX_SHOWN:
        say(f"  … and {intake.n_skipped - MAX_SHOWN:,} more skipped lines")
    for conflict in intake.conflicts[:MAX_SHOWN]:
        say(f"  conflict at line {conflict.line}: the log has {conflict.id} with other content")
    if intake.n_conflicts > MAX_SHOWN:
        say(f"  … and {intake.n_conflicts - MAX_SHOWN:,} more conflicts")


def _say_flush(done: "Flushed") -> None:
    how = "flushed" if done.failure is None else f"flush failed ({done.failure})"
    say(
        f"{how} {done.session} up to {done.leaf} in {done.seconds:.2f} s: "
        f"{done.observations:,} observations, {done.reflections:,} reflections, "
        f"{done.dropped:,} dropped"
    )


def _say_compaction(done: "Compacted") -> None:
    if done.failure is not None:
        say(f"compaction refused: {done.failure}: {_REFUSALS.get(done.failure, 'see the log')}")
        return
    say(
        f"compacted {done.session} through {done.through} in {done.milliseconds:.0f} ms: summary "
        f"{done.summary_bytes:,} bytes of {done.observations:,} observations and "
        f"{done.reflections:,} reflections, {done.trimmed:,} observations trimmed"
    )


_REFUSALS = {
    "nothing_folded": "there is no memory yet, so the messages stay as they are",
    "no_progress": "everything before the recent messages is in a compaction already",
    "passive": "the session's settings let the memory only read",
}
