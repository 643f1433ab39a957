"""The faults, each a function over a round that is under load; they return once it is over."""

import asyncio
import shutil
import signal
from collections.abc import Callable
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.app import group_of
from ombus_streams.engine.kafka.topics import Refused

from tests.kafka.chaos_round import ROLE, Round
from tests.kafka.logs import declared
from tests.kafka.world import SystemClock, until

Fault = Callable[[Round], None]


def killed_kept(round: Round) -> None:
    """SIGKILL, three times; its rows are there when it comes back."""
    for _ in range(3):
        round.start()
        round.folds("a")
        round.wait(0.2, 2.0)
        round.gone("a").kill()
    round.start()


def killed_wiped(round: Round) -> None:
    """SIGKILL, and the disk is lost with it."""
    round.start()
    round.folds("a")
    round.wait(0.5, round.ground.load_seconds)
    round.gone("a").kill()
    shutil.rmtree(round.rows("a"))
    round.start()


def killed_two(round: Round) -> None:
    """Both of two workers are killed, one after the other; one loses its disk."""
    round.start("a")
    round.start("b")
    round.owns("a", 2)
    round.wait(0.5, 3.0)
    round.gone("a").kill()
    round.wait(0.1, 2.0)
    round.gone("b").kill()
    shutil.rmtree(round.rows("b"))
    round.start("a")
    round.start("b")


def joined_left(round: Round) -> None:
    """A second worker joins, the first one leaves in order."""
    round.start("a", run_seconds=0.5)
    round.folds("a")
    round.start("b", run_seconds=0.5)
    round.owns("b", 2)
    round.wait(0.5, 2.0)
    code = round.gone("a").stop()
    assert code == 0
    round.owns("b", round.place.partitions)


def woken(round: Round) -> None:
    """An old owner is paused past its session timeout, and woken while another one folds."""
    old = round.start("a", run_seconds=0.5)
    round.folds("a")
    round.start("b", run_seconds=0.5)
    round.owns("b", 2)
    until(lambda: old.status is not None and old.status.n_runs_under_way > 0, 60, "a run")
    old.pause()
    round.owns("b", round.place.partitions)
    round.wait(0.5, 2.0)
    old.wake()
    round.owns("b", 2)


def broker_killed(round: Round) -> None:
    """One broker of three is killed and comes back."""
    cluster = round.ground.cluster
    assert cluster is not None
    round.start()
    round.folds("a")
    node_id = round.chance.choice(cluster.brokers).node_id
    cluster.process(node_id).kill()
    round.wait(3.0, 6.0)
    cluster.start(node_id)
    cluster.wait()


def unreachable(round: Round) -> None:
    """No broker can be reached from the worker; half of the times nobody even says no."""
    place, proxy = round.proxied()
    round.start("a", place)
    round.folds("a")
    proxy.turn("silent" if round.number // len(FAULTS) % 2 == 0 else "refused")
    round.wait(round.ground.outage_seconds, round.ground.outage_seconds)
    proxy.turn("open")


def coordinator_moved(round: Round) -> None:
    """The broker that coordinates the group is stopped; another one takes the group over."""
    cluster = round.ground.cluster
    assert cluster is not None
    round.start()
    round.folds("a")
    before = coordinator_of(round)
    cluster.process(before).stop()
    until(lambda: coordinator_of(round) not in (before, -1), 60, "another coordinator")
    round.wait(1.0, 4.0)
    cluster.start(before)
    cluster.wait()


def clock_jumped(round: Round) -> None:
    """The worker's wall clock jumps 400 days ahead, then 400 days behind what it was."""
    child = round.start()
    round.folds("a")
    child.send(signal.SIGUSR1)
    round.wait(1.0, 3.0)
    child.send(signal.SIGUSR2)
    round.wait(1.0, 3.0)


def topic_recreated(round: Round) -> None:
    """The topic is deleted and made anew: no worker folds the new log over rows of the old one."""
    child = round.start()
    round.folds("a")
    round.feed.end()
    recreate(round)
    round.another_log(round.place)
    until(lambda: not child.is_running, 90, "the worker ends by itself")
    assert child.ended() != 0
    again = round.start()
    assert again.ended(60) != 0
    said = again.said()
    assert "the store folds log" in said, said
    round.remark = "refused: the store folds another log"
    round.gone("a")
    shutil.rmtree(round.rows("a"))
    round.start()
    round.folds("a")
    round.wait(1.0, 3.0)


FAULTS: Final[dict[str, Fault]] = {
    "killed, rows kept": killed_kept,
    "killed, rows wiped": killed_wiped,
    "two killed": killed_two,
    "joined and left": joined_left,
    "old owner woken": woken,
    "broker killed": broker_killed,
    "brokers unreachable": unreachable,
    "coordinator moved": coordinator_moved,
    "clock jumped": clock_jumped,
    "topic re-created": topic_recreated,
}


def coordinator_of(round: Round) -> int:
    """Return the node that coordinates the workers' group, -1 while there is none."""

    async def ask() -> int:
        admin = AIOKafkaAdminClient(bootstrap_servers=round.place.bootstrap)
        await admin.start()
        try:
            return int(await admin.find_coordinator(group_of(ROLE, round.place.topic)))
        finally:
            await admin.close()

    try:
        return asyncio.run(ask())
    except Exception:  # While it moves, there is any of a dozen errors.
        return -1


def recreate(round: Round) -> None:
    """Delete the topic with all it holds and open another log under its name."""
    name = round.place.topic

    async def ask(deletes: bool) -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=round.place.bootstrap)
        await admin.start()
        try:
            if deletes:
                await admin.delete_topics([name])
            return list(await admin.list_topics())
        finally:
            await admin.close()

    wanted = [declared(name, round.place.partitions)]
    while True:
        asyncio.run(ask(True))
        until(lambda: name not in asyncio.run(ask(False)), 30, "the topic is gone")
        try:
            asyncio.run(topics.apply(round.place.connection, SystemClock(), wanted))
        except Refused:
            # The worker's last result was faster: then it is the first record of no log.
            continue
        return
