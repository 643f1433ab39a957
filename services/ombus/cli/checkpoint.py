"""``ombus checkpoint``: rows folded from Kafka, kept so that nobody must fold the log from zero."""

from typing import TYPE_CHECKING, Annotated

import typer
from ombus_schemas.topics import ENTRIES

from ombus.cli.options import Data, Instance, Json, RoleName, Servers, TopicName
from ombus.cli.output import columns, object_of, progress, say, say_json

if TYPE_CHECKING:
    from ombus.operator.checkpoints import Checkpoint

app = typer.Typer(
    help="Rows folded from Kafka, saved and put back: a start that is not the log's start.",
    no_args_is_help=True,
)

DepotAt = Annotated[
    str,
    typer.Argument(metavar="PLACE", help="A folder, or a URL as s3://bucket/prefix."),
]


@app.command()
def save(
    context: typer.Context,
    place: DepotAt,
    role: RoleName = "all",
    instance: Instance = None,
    topic: TopicName = ENTRIES,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="Older ones of a partition go.")
    ] = 3,
    json: Json = False,
    data: Data = None,
) -> None:
    """Save each partition as it stands now, while its worker goes on.

    Into a folder on the same disk tables are hard-linked; elsewhere only what is new is copied.
    """
    from ombus.cli.rows import Rows
    from ombus.operator.checkpoints import save as run
    from ombus.operator.depot import depot_at
    from ombus.wiring import SystemClock

    where = Rows(context, data, None, topic, role, instance)
    with progress("saving") as tell:
        now = SystemClock().now()
        saved = run(depot_at(place), where.folder, role, topic, now, keep=keep, tell=tell)
    if json:
        for each in saved:
            say_json({**object_of(each), "nBytes": each.checkpoint.n_bytes})
        return
    for line in _table([each.checkpoint for each in saved]):
        say(line)
    n_new = sum(each.n_new_bytes for each in saved)
    say(f"saved {len(saved)} partitions to {place}, {n_new:,} bytes of them new")


@app.command(name="list")
def list_(context: typer.Context, place: DepotAt, json: Json = False) -> None:
    """List what can be restored; exit 1 if that is nothing."""
    from ombus.cli.exits import FOUND
    from ombus.cli.shell import settings_for
    from ombus.operator.checkpoints import listed
    from ombus.operator.depot import depot_at

    settings_for(context)
    found = listed(depot_at(place))
    if json:
        for each in found:
            say_json({**object_of(each), "nBytes": each.n_bytes})
    else:
        for line in _table(found) if found else [f"{place} holds no checkpoint"]:
            say(line)
    if not found:
        raise typer.Exit(FOUND)


@app.command()
def restore(
    context: typer.Context,
    place: DepotAt,
    role: RoleName = "all",
    instance: Instance = None,
    topic: TopicName = ENTRIES,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", min=0, help="Only these. Default: all."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where there are rows; no worker may fold them.")
    ] = False,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Put the newest checkpoint of each partition where a worker finds it. The worker folds on.

    Every file is compared with its hash first. Those of another log or fold version are no start.
    """
    from ombus.cli.rows import Rows
    from ombus.operator.checkpoints import NoCheckpoint, newest
    from ombus.operator.checkpoints import restore as run
    from ombus.operator.depot import depot_at

    where, depot = Rows(context, data, servers, topic, role, instance), depot_at(place)
    with where.log() as log:
        found = newest(depot, log.incarnation, role)
        incarnation = log.incarnation
    wanted = [found[each] for each in sorted(found) if not partition or each in partition]
    if not wanted:
        raise NoCheckpoint(
            f"{place} has no checkpoint of {role} for log {incarnation}: "
            "`ombus checkpoint list` shows what there is"
        )
    with progress("restoring") as tell:
        for done, each in enumerate(wanted):
            tell(done, len(wanted))
            run(depot, each, where.folder, replace=replace)
    if json:
        for each in wanted:
            say_json({**object_of(each), "nBytes": each.n_bytes})
        return
    for line in _table(wanted):
        say(line)
    say(f"restored {len(wanted)} partitions to {where.folder}")


def _table(found: "list[Checkpoint]") -> list[str]:
    rows = [("ROLE", "PARTITION", "NEXT", "FOLD", "BYTES", "TAKEN", "LOG")]
    rows += [
        (
            each.role,
            str(each.partition),
            f"{each.position.next_offset:,}",
            str(each.position.fold_version),
            f"{each.n_bytes:,}",
            each.taken_at.isoformat(timespec="seconds"),
            each.position.incarnation,
        )
        for each in found
    ]
    return columns(rows, right=frozenset({1, 2, 3, 4}))
