"""``ombus archive`` and ``ombus restore``: a log as compressed files, and back."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from ombus_schemas.topics import ENTRIES

from ombus.cli.options import OF_KAFKA, Data, Json, Servers, TopicName, refuse
from ombus.cli.output import note, object_of, progress, say, say_json
from ombus.cli.shell import connection_for_command, settings_for

if TYPE_CHECKING:
    from ombus_streams.runtime.ports import EntryLog

    from ombus.operator.archives import Archive

MAX_NAMED = 5
ArchiveAt = Annotated[
    str, typer.Argument(metavar="PLACE", help="A folder, or a URL as s3://bucket/prefix.")
]


class LogAt(StrEnum):
    """Kinds of logs."""

    KAFKA = "kafka"
    SQLITE = "sqlite"


def archive(
    context: typer.Context,
    place: ArchiveAt,
    from_: Annotated[
        LogAt, typer.Option("--from", help="Which log; `sqlite` is the data folder's.")
    ] = LogAt.SQLITE,
    check: Annotated[
        bool, typer.Option("--check", help="Archive nothing: read all of it and prove it.")
    ] = False,
    segment_mb: Annotated[
        int, typer.Option("--segment-mb", metavar="N", min=1, help="Records a segment holds.")
    ] = 16,
    topic: TopicName = ENTRIES,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Write what the log has and the archive has not into compressed segments with their hashes.

    Killed, or run again, it goes on. Records are archived whatever they are. `--check` ends with 1
    when a segment is lost or changed.
    """
    from ombus.cli.exits import FOUND, line_of
    from ombus.operator.archives import DamagedArchive
    from ombus.operator.archives import archive as run
    from ombus.operator.archives import check as prove
    from ombus.operator.depot import depot_at

    if check:
        of_log = ("from_", "segment_mb", "topic", "servers", "data")
        refuse(context, "is of a log, and --check reads the archive alone", *of_log)
    refuse_unless_kafka(context, "--from", from_)
    settings_for(context, data)
    depot = depot_at(place)
    if check:
        try:
            with progress("reading") as tell:
                found = prove(depot, tell)
        except DamagedArchive as error:
            note(line_of(error))
            raise typer.Exit(FOUND) from error
        _say_checked(place, found, as_json=json)
        return
    with opened_log(context, from_, data, topic, servers) as log, progress("archiving") as tell:
        done = run(depot, log, topic, segment_bytes=segment_mb << 20, tell=tell)
    if json:
        say_json(done)
        return
    say(
        f"archived {done.n_new_records:,} records in {done.n_new_segments:,} new segments; "
        f"{place} holds {done.n_records:,} in {done.n_segments:,}, {done.n_bytes:,} bytes"
    )


def restore(
    context: typer.Context,
    place: ArchiveAt,
    to: Annotated[LogAt, typer.Option("--to", help="Which log; `sqlite` is a data folder.")],
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FOLDER", help="The data folder. Default: --data."),
    ] = None,
    topic: TopicName = ENTRIES,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Write an archive into a log, in order and with its times, and compare the two.

    A topic is made by `ombus topics apply` or `ombus topics create` first. Killed, or run again, it
    goes on and writes nothing twice. Exit 1: the log does not hold what the archive has.
    """
    from ombus.cli.exits import FOUND
    from ombus.operator.archive_source import ArchiveSource, lacking
    from ombus.operator.depot import depot_at
    from ombus.operator.replay import Selection, replay
    from ombus.operator.replay_logs import LogTarget

    refuse_unless_kafka(context, "--to", to)
    if to is LogAt.KAFKA:
        refuse(context, "is a data folder, and --to is kafka: --topic says where", "into")
    settings, depot = settings_for(context, data), depot_at(place)
    source = ArchiveSource(depot)
    with opened_log(context, to, into or settings.folder, topic, servers) as log:
        with progress("restoring") as tell:
            done = replay(
                source, LogTarget(log), Selection(), settings.folder / ".replay", tell=tell
            )
        with progress("comparing") as tell:
            differing = lacking(depot, log, tell)
    if json:
        say_json({"equal": not differing, **object_of(done), "differing": differing})
    else:
        there = f", {done.already_there:,} were there already" if done.already_there else ""
        left = f", {done.left_behind:,} without key or value left" if done.left_behind else ""
        say(f"restored {done.copied:,} records of {done.sessions:,} sessions{there}{left}")
        for session in differing[:MAX_NAMED]:
            say(f"{session}: the log does not hold what the archive has")
        say(f"restore: {len(differing):,} sessions differ" if differing else "restore: equal")
    if differing:
        raise typer.Exit(FOUND)


def refuse_unless_kafka(context: typer.Context, option: str, at: LogAt) -> None:
    """Refuse what says where on Kafka the log is, if it is not there."""
    if at is not LogAt.KAFKA:
        refuse(context, f"is of a log on Kafka: add {option} kafka", *OF_KAFKA)


@contextmanager
def opened_log(
    context: typer.Context, at: LogAt, folder: Path | None, topic: str, servers: str | None
) -> "Iterator[EntryLog]":
    """Lend the log that a command names."""
    match at:
        case LogAt.KAFKA:
            from ombus.wiring_kafka import open_kafka_log

            with closing(open_kafka_log(connection_for_command(context, servers), topic)) as log:
                yield log
        case LogAt.SQLITE:
            from ombus.wiring import open_log

            settings = settings_for(context, folder)
            with closing(open_log(settings.folder, settings.partitions)) as found:
                yield found


def _say_checked(place: str, found: "Archive", *, as_json: bool) -> None:
    if as_json:
        value = {**object_of(found), "nRecords": found.n_records, "nBytes": found.n_bytes}
        say_json(value)
        return
    say(
        f"{place}: log {found.incarnation} ({found.topic}, {found.partitions} partitions), "
        f"{found.n_records:,} records in {len(found.segments):,} segments, all as written"
    )
