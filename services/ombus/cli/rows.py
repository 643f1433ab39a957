"""What commands do with rows folded from Kafka: ``verify``, ``rebuild``, ``replica``."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from ombus_schemas.topics import ENTRIES

from ombus.cli.options import (
    Data,
    FromCheckpoint,
    Instance,
    Json,
    RoleName,
    Servers,
    TopicName,
)
from ombus.cli.output import note, progress, say, say_json
from ombus.cli.shell import connection_for_command, settings_for

if TYPE_CHECKING:
    from ombus_streams.runtime.ports import EntryLog

    from ombus.operator.depot import Depot
    from ombus.operator.following import Followed, Together
    from ombus.operator.progress import Tell
    from ombus.operator.together import OpenLog
    from ombus.operator.verification import Verification


class Rows:
    """Which rows a command means, and the log they are folded from."""

    def __init__(
        self,
        context: typer.Context,
        data: Path | None,
        servers: str | None,
        topic: str,
        role: str,
        instance: str | None,
    ) -> None:
        from ombus.settings import BadSetting
        from ombus.wiring_state import ROLE_NAMES, state_folder

        if role not in ROLE_NAMES:
            raise BadSetting("--role", f"{role} is none of {', '.join(ROLE_NAMES)}")
        self._context, self._servers = context, servers
        self.data = settings_for(context, data).folder
        self.topic, self.role, self.instance = topic, role, instance or socket.gethostname()
        self.folder = state_folder(self.data, self.instance, role)

    def opens_log(self) -> "OpenLog":
        """Return what opens the log, here and in other processes."""
        from ombus.wiring_kafka import open_kafka_log

        connection = connection_for_command(self._context, self._servers)
        return partial(open_kafka_log, connection, self.topic)

    @contextmanager
    def log(self) -> "Iterator[EntryLog]":
        with closing(self.opens_log()()) as log:
            yield log


def verified(where: Rows) -> "Verification":
    """Return what came of comparing the rows with a fold of the log."""
    from ombus.operator.kafka_verification import verify_rows

    with where.log() as log, progress("verifying") as tell:
        return verify_rows(where.folder, log, tell)


def rebuild(
    where: Rows,
    checkpoints: str | None,
    wait_seconds: float,
    n_processes: int | None,
    *,
    as_json: bool,
) -> None:
    from ombus.operator.following import rebuild as run

    with where.log() as log, progress("rebuilding") as tell:
        done = run(
            where.data,
            where.instance,
            where.role,
            log,
            depot=_depot(checkpoints),
            wait_seconds=wait_seconds,
            together=_together(where, n_processes),
            tell=tell,
        )
    if as_json:
        say_json(done)
        return
    say(f"rebuilt {_what(done)}")
    say(f"waited {done.waited_seconds:.1f} s for a worker to let go; a worker opens it from here")


def remove_old(where: Rows, *, as_json: bool) -> None:
    from ombus.operator.following import remove_old as run

    with where.log() as log:
        gone = run(where.data, where.instance, where.role, log)
    if as_json:
        say_json({"removed": [str(each) for each in gone]})
        return
    for each in gone:
        say(f"removed {each}")
    if not gone:
        say("no rows of an older fold version")


def replica(
    context: typer.Context,
    role: RoleName = "all",
    instance: Instance = None,
    topic: TopicName = ENTRIES,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", min=0, help="Only these. Default: all."),
    ] = None,
    checkpoints: FromCheckpoint = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End as soon as the log's end is near.")
    ] = False,
    servers: Servers = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Fold partitions this machine does not own, so that it can own them at once: a warm replica.

    Emits nothing, runs no worker, is in no group. To promote it, end it (SIGTERM) and start
    `ombus worker` with the same --instance: it finds the rows and folds the tail.
    """
    import signal
    import threading

    from ombus.operator.following import follow
    from ombus.operator.replay import BadSelection

    where, stop = Rows(context, data, servers, topic, role, instance), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with where.log() as log, progress("following") as tell:
        partitions = sorted(set(partition or range(log.partitions)))
        if partitions[-1] >= log.partitions:
            fact = f"{topic} has {log.partitions} partitions"
            raise BadSelection(f"--partition {partitions[-1]}: {fact}: name one below that")
        done = follow(
            where.folder,
            log,
            partitions,
            stop,
            role=role,
            depot=_depot(checkpoints),
            ends=until_caught_up,
            tell=tell,
        )
    if json:
        say_json(done)
    else:
        say(f"followed {_what(done)}")


def _together(where: Rows, n_processes: int | None) -> "Together":
    """Return what folds in so many processes; unless told, in as many as pay."""
    from ombus.operator.together import fold_together, n_worth

    def together(folder: Path, left: Mapping[int, int], tell: "Tell") -> int:
        n = n_processes or n_worth(sum(left.values()))
        if n == 1:
            return 0  # What comes after folds all of it.
        return fold_together(folder, where.opens_log(), left, n, tell=tell, note=note)

    return together


def _depot(place: str | None) -> "Depot | None":
    from ombus.operator.depot import depot_at

    return None if place is None else depot_at(place)


def _what(done: "Followed") -> str:
    begun = f", {done.from_checkpoint} from a checkpoint" if done.from_checkpoint else ""
    return (
        f"{done.partitions} partitions{begun}: folded {done.records:,} records in "
        f"{done.seconds:.1f} s, {done.lag:,} behind, in {done.folder}"
    )
