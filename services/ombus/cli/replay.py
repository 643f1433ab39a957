"""``ombus replay``: records of one log into another, or into a file."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from ombus_schemas.topics import ENTRIES, GRANTS

from ombus.cli.options import Data, Json, Servers, refuse
from ombus.cli.output import note, progress, say, say_json
from ombus.cli.shell import connection_for_command, settings_for

if TYPE_CHECKING:
    from ombus.operator.replay import OffsetRange, Selection, Source, Target
    from ombus.settings import ProcessSettings


class _Kind(msgspec.Struct, frozen=True):
    """One of the logs of a place."""

    topic: str
    folder: str
    """Where it lies in a data folder."""


_ENTRIES: Final = _Kind(ENTRIES, ".")
_GRANTS: Final = _Kind(GRANTS, "grants")
_TOPICS: Final = f"Default: {ENTRIES}, with --grants {GRANTS}."


class Place(StrEnum):
    """Kinds of logs."""

    KAFKA = "kafka"
    SQLITE = "sqlite"
    FILE = "file"


def replay(
    context: typer.Context,
    to: Annotated[Place, typer.Option("--to", help="Where the copies go.")],
    from_: Annotated[
        Place, typer.Option("--from", help="Where the records are; `sqlite` is the data folder.")
    ] = Place.SQLITE,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="PATH", help="The data folder, or the file, to copy into."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="FILE", help="The file to copy from.")
    ] = None,
    grants: Annotated[
        bool,
        typer.Option("--grants", help="Who may read which scope and who no longer, not entries."),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help=f"On Kafka, to copy into. {_TOPICS}"),
    ] = None,
    source_topic: Annotated[
        str | None,
        typer.Option("--source-topic", metavar="NAME", help=f"On Kafka, to copy from. {_TOPICS}"),
    ] = None,
    session: Annotated[
        list[str] | None,
        typer.Option("--session", "-s", metavar="ID", help="Only these, as ID or TENANT/ID."),
    ] = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "--offsets", metavar="P:FROM-TO", help="Only these of partition P, TO excluded."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Appended then or later; ISO, UTC."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Appended before; ISO, UTC.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.1, help="Records a second at most.")
    ] = None,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Copy records in order, with their append times. Killed, or run again, it goes on.

    Appends nothing of its own: memory comes with the entries, and a fold of the copy is equal.
    Grants of scopes are a log beside the entries: `--grants` copies that one.
    """
    from ombus.operator.replay import Selection
    from ombus.operator.replay import replay as run
    from ombus.wiring import has_log

    if to is Place.KAFKA:
        refuse(context, "is a folder or a file, and --to is kafka: --topic says where", "into")
    else:
        refuse(context, "is where --to kafka copies: add it", "topic")
    if from_ is not Place.KAFKA:
        refuse(context, "is what --from kafka reads: add it", "source_topic")
    if from_ is not Place.FILE:
        refuse(context, "is what --from file reads: add it", "source")
    if Place.KAFKA not in (to, from_):
        refuse(context, "is of Kafka: add --from kafka or --to kafka", "servers")
    if grants:
        # A session's grants and revocations have one key, so --session keeps them together.
        fact = "would part grants from their revocations: copy them whole"
        refuse(context, fact, "since", "until", "offsets")
    settings = settings_for(context, data)
    kind = _GRANTS if grants else _ENTRIES
    selection = Selection(
        sessions=tuple(
            each if "/" in each else f"{settings.tenant}/{each}" for each in session or ()
        ),
        ranges=tuple(map(_range, offsets or ())),
        since_ms=_ms("--since", since),
        until_ms=_ms("--until", until),
    )
    with ExitStack() as stack:
        origin = stack.enter_context(
            _source(context, from_, settings, source, source_topic, servers, selection, kind)
        )
        target = stack.enter_context(_target(context, to, settings, into, topic, servers, kind))
        with progress("replaying") as tell:
            done = run(origin, target, selection, settings.folder / ".replay", rate=rate, tell=tell)
    if not grants and from_ is Place.SQLITE and has_log(settings.folder / _GRANTS.folder):
        note("ombus: its grants of scopes stay behind: run it again with --grants")
    if json:
        say_json(done)
        return
    left = f", {done.left_behind:,} without key or value left behind" if done.left_behind else ""
    there = f", {done.already_there:,} were there already" if done.already_there else ""
    say(f"copied {done.copied:,} records of {done.sessions:,} sessions{there}{left}")


@contextmanager
def _source(
    context: typer.Context,
    place: Place,
    settings: "ProcessSettings",
    file: Path | None,
    topic: str | None,
    servers: str | None,
    selection: "Selection",
    kind: "_Kind",
) -> Iterator["Source"]:
    from ombus.operator.errors import NoData
    from ombus.operator.replay import BadSelection
    from ombus.operator.replay_logs import LogSource
    from ombus.wiring import has_log, open_log

    match place:
        case Place.KAFKA:
            from ombus.wiring_kafka import open_kafka_log

            connection = connection_for_command(context, servers)
            with closing(open_kafka_log(connection, topic or kind.topic)) as log:
                yield LogSource(log, selection.ranges)
        case Place.SQLITE:
            place_of_log = settings.folder / kind.folder
            if not has_log(settings.folder):
                raise NoData(settings.folder)
            if not has_log(place_of_log):
                raise BadSelection(f"{settings.folder} has no grants of scopes to copy")
            with closing(open_log(place_of_log, topic=kind.topic)) as folder:
                yield LogSource(folder, selection.ranges)
        case Place.FILE:
            from ombus.operator.replay_file import FileSource

            if file is None:
                raise BadSelection("--from file needs --source: name the file")
            yield FileSource(file)


@contextmanager
def _target(
    context: typer.Context,
    place: Place,
    settings: "ProcessSettings",
    into: Path | None,
    topic: str | None,
    servers: str | None,
    kind: "_Kind",
) -> Iterator["Target"]:
    from ombus.operator.replay import BadSelection
    from ombus.operator.replay_logs import LogTarget
    from ombus.wiring import open_log

    if place is not Place.KAFKA and into is None:
        raise BadSelection(f"--to {place.value} needs --into: name the folder or the file")
    match place:
        case Place.KAFKA:
            from ombus.wiring_kafka import open_kafka_log

            connection = connection_for_command(context, servers)
            with closing(open_kafka_log(connection, topic or kind.topic)) as log:
                yield LogTarget(log)
        case Place.SQLITE:
            assert into is not None
            partitions = settings.partitions if kind is _ENTRIES else None
            with closing(open_log(into / kind.folder, partitions, kind.topic)) as folder:
                yield LogTarget(folder)
        case Place.FILE:
            from ombus.operator.replay_file import FileTarget

            assert into is not None
            with closing(FileTarget(into)) as file:
                yield file


def _range(text: str) -> "OffsetRange":
    from ombus.operator.replay import BadSelection, OffsetRange

    partition, _, offsets = text.partition(":")
    first, _, end = offsets.partition("-")
    if not (partition.isdecimal() and first.isdecimal() and end.isdecimal()):
        raise BadSelection(f"--offsets {text} is no range: write PARTITION:FROM-TO")
    return OffsetRange(int(partition), int(first), int(end))


def _ms(option: str, text: str | None) -> int | None:
    from datetime import UTC

    from ombus.operator.replay import BadSelection

    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadSelection(f"{option} {text} is no time: write 2026-01-31T12:00:00Z") from error
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return int(instant.timestamp() * 1_000)
