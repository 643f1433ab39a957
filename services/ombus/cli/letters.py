"""``ombus dlq``: what could not be folded, and what is decided about it.

The letters are those of the data folder, or with ``--bootstrap-servers`` those of a Kafka cluster.
"""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES

from ombus.cli.options import OF_KAFKA, Data, Json, Servers, refuse
from ombus.cli.output import columns, say, say_json
from ombus.cli.shell import caught_up, connection_for_command

if TYPE_CHECKING:
    from ombus_streams.runtime.ports import EntryLog

app = typer.Typer(
    help="Dead letters: records that could not be folded, kept whole.", no_args_is_help=True
)

LetterId = Annotated[
    str, typer.Argument(metavar="LETTER", help="PARTITION:OFFSET, as `list` prints it.")
]
Again = Annotated[
    bool, typer.Option("--again", help="Also a letter that was decided about before.")
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="On Kafka: where the entries are.")
]
DeadLetters = Annotated[
    str, typer.Option("--dead-letters", metavar="NAME", help="On Kafka: where the letters are.")
]


class Logs(msgspec.Struct, frozen=True):
    """The log a letter came from, and the log it lies on."""

    entries: "EntryLog"
    letters: "EntryLog"


@app.command("list")
def list_letters(
    context: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were retried or discarded.")
    ] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Print their ids alone, for scripts.")] = False,
    servers: Servers = None,
    topic: Topic = ENTRIES,
    dead_letters: DeadLetters = DEAD_LETTERS,
    json: Json = False,
    data: Data = None,
) -> None:
    """List the open dead letters. With --json one a line; none, no line."""
    from ombus.operator.letters import letters

    if ids:
        refuse(context, "prints letters whole, --ids their ids alone: give one of them", "json")
    with _logs(context, data, servers, topic, dead_letters) as logs:
        found = letters(logs.letters)
    shown = [each for each in found if everything or each.state == "open"]
    if json:
        for each in shown:
            say_json(each.as_json())
        return
    if ids:
        for each in shown:
            say(each.id)
        return
    if not shown:
        say("no open dead letters" if not everything else "no dead letters")
        return
    rows: list[tuple[str, ...]] = [("LETTER", "REASON", "STATE", "BYTES", "SESSION", "DETAIL")]
    rows += [
        (each.id, each.reason, each.state, f"{each.n_bytes:,}", each.session, each.detail)
        for each in shown
    ]
    for line in columns(rows, right=frozenset({3})):
        say(line)


@app.command("show")
def show(
    context: typer.Context,
    letter: LetterId,
    servers: Servers = None,
    topic: Topic = ENTRIES,
    dead_letters: DeadLetters = DEAD_LETTERS,
    json: Json = False,
    data: Data = None,
) -> None:
    """Print a dead letter whole: why, whence, its headers, its bytes, what was decided."""
    from ombus.operator.letters import letter as find

    with _logs(context, data, servers, topic, dead_letters) as logs:
        found = find(logs.letters, letter)
    shown = found.as_json(with_value=True)
    if json:
        say_json(shown)
        return
    say(f"letter {found.id} of {found.topic}, {found.state}")
    say(f"reason {found.reason}: {found.detail}")
    say(f"session {found.session or '(no key)'}, {found.n_bytes:,} bytes")
    for decision in found.decisions:
        where = f" at {decision.position}" if decision.position else ""
        say(f"{decision.action} by {decision.by}{where}")
    say()
    say(str(shown["value"]))


@app.command("retry")
def retry(
    context: typer.Context,
    letter: LetterId,
    again: Again = False,
    servers: Servers = None,
    topic: Topic = ENTRIES,
    dead_letters: DeadLetters = DEAD_LETTERS,
    data: Data = None,
) -> None:
    """Append the original record once more: it folds if what was wrong is mended."""
    from ombus.operator.letters import letter as find
    from ombus.operator.letters import retry as retry_letter

    with _logs(context, data, servers, topic, dead_letters) as logs:
        found = find(logs.letters, letter)
        position = retry_letter(logs.entries, logs.letters, found, getpass.getuser(), again=again)
    say(f"retried {letter}: appended at {position}")


@app.command("discard")
def discard(
    context: typer.Context,
    letter: LetterId,
    again: Again = False,
    servers: Servers = None,
    topic: Topic = ENTRIES,
    dead_letters: DeadLetters = DEAD_LETTERS,
    data: Data = None,
) -> None:
    """Note that nobody needs a dead letter any more."""
    from ombus.operator.letters import discard as discard_letter
    from ombus.operator.letters import letter as find

    with _logs(context, data, servers, topic, dead_letters) as logs:
        found = find(logs.letters, letter)
        discard_letter(logs.letters, found, getpass.getuser(), again=again)
    say(f"discarded {letter}")


@contextmanager
def _logs(
    context: typer.Context, data: Path | None, servers: str | None, topic: str, dead_letters: str
) -> Iterator[Logs]:
    """Open the logs of the data folder, folded up to now, or those of the named brokers."""
    if servers is None:
        refuse(context, "is of letters on Kafka: add --bootstrap-servers", *OF_KAFKA)
        with caught_up(context, data) as desk:
            yield Logs(desk.engine.log, desk.engine.dead_letters)
        return
    refuse(context, "is of a data folder, and --bootstrap-servers names Kafka", "data")
    from ombus.wiring_kafka import open_kafka_log

    connection = connection_for_command(context, servers)
    entries = open_kafka_log(connection, topic)
    try:
        letters = open_kafka_log(connection, dead_letters)
        try:
            yield Logs(entries, letters)
        finally:
            letters.close()
    finally:
        entries.close()
