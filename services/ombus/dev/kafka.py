"""A cluster of Apache Kafka brokers on loopback: formatted, started, ready, stopped.

Its folder holds all there is to know: ``cluster.json`` (version, ports), and for each broker its
configuration, data, output and pid. ``up`` on a folder that has a cluster starts what does not
run, with the same ports and data.
"""

import base64
import shutil
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from ombus.dev.errors import DevError
from ombus.dev.jars import broker_jars, kafka_version, project
from ombus.dev.kraft import Broker, Security, server_properties
from ombus.dev.metadata import live_brokers
from ombus.dev.processes import HOST, Process, free_ports, require_tool

HEAP: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""A broker is small: the page cache does its work, and two cores are all there may be."""
MAX_BROKERS: Final = 5
_FORMAT_SECONDS: Final = 60
_PORTS: Final = 5
_STATE: Final = "cluster.json"


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What ``up`` made; ``ombus dev kafka up --json`` prints it."""

    folder: str
    version: str
    """Of Apache Kafka."""
    cluster_id: str
    brokers: tuple[Broker, ...]

    @property
    def bootstrap(self) -> str:
        """The clients' addresses, as every Kafka client takes them."""
        return ",".join(broker.address for broker in self.brokers)

    def process(self, node_id: int) -> Process:
        """Return the process of a broker, to stop, kill or look at."""
        return Process(f"broker-{node_id}", Path(self.folder) / f"broker-{node_id}")

    def start(self, node_id: int) -> None:
        """Start a broker that does not run; it is not ready yet."""
        process = self.process(node_id)
        process.start(_java("kafka.Kafka", str(process.folder / "server.properties")))

    def wait(self) -> None:
        """Return once every broker is in the metadata that every broker serves.

        Raises:
            NotReady: one of them has ended, or does not answer.
        """
        for broker in self.brokers:
            self.process(broker.node_id).wait_until(partial(self._is_known_to, broker))

    def _is_known_to(self, broker: Broker) -> bool:
        return len(live_brokers(HOST, broker.client_port)) == len(self.brokers)


def up(folder: Path, n_brokers: int = 1, security: Security | None = None) -> Cluster:
    """Start the cluster of ``folder``, made if there is none, and return once it answers.

    ``security`` counts when it is made.

    Raises:
        ToolMissing: Java or Maven is not there.
        NotReady: see the output it names.
        DevError: the folder holds a cluster of another size.
    """
    if not 1 <= n_brokers <= MAX_BROKERS:
        raise DevError("--brokers", f"is {n_brokers}", f"name 1 to {MAX_BROKERS}")
    cluster = find(folder)
    if cluster is None:
        cluster = _make(folder.absolute(), n_brokers, security)
    elif len(cluster.brokers) != n_brokers:
        fact = f"holds a cluster of {len(cluster.brokers)} brokers"
        raise DevError(str(folder), fact, "delete it with `ombus dev kafka down --wipe` first")
    for broker in cluster.brokers:
        cluster.start(broker.node_id)
    cluster.wait()
    return cluster


def find(folder: Path) -> Cluster | None:
    """Return the cluster of ``folder``, running or not."""
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=Cluster)
    except FileNotFoundError:
        return None


def down(folder: Path, *, wipe: bool = False) -> int:
    """Stop the brokers of ``folder``, delete it with ``wipe``; return how many were running."""
    cluster = find(folder)
    n_running = 0
    if cluster is not None:
        # Together: a controller that waits for a quorum that is going away takes its time.
        with ThreadPoolExecutor(len(cluster.brokers)) as pool:
            ended = pool.map(lambda each: cluster.process(each.node_id).stop(), cluster.brokers)
            n_running = sum(ended)
    if wipe:
        shutil.rmtree(folder, ignore_errors=True)
    return n_running


def _make(folder: Path, n_brokers: int, security: Security | None) -> Cluster:
    ports = free_ports(n_brokers * _PORTS)
    brokers = tuple(
        Broker(
            node_id=number + 1,
            client_port=ports[_PORTS * number],
            proxied_port=ports[_PORTS * number + 1],
            advertised_port=ports[_PORTS * number + 2],
            controller_port=ports[_PORTS * number + 3],
            secured_port=ports[_PORTS * number + 4],
        )
        for number in range(n_brokers)
    )
    cluster = Cluster(
        folder=str(folder),
        version=kafka_version(),
        cluster_id=_cluster_id(),
        brokers=brokers,
    )
    with ThreadPoolExecutor(len(brokers)) as pool:
        list(pool.map(lambda broker: _format(cluster, broker, security), brokers))
    # Last: a folder without it was never finished and is made anew.
    (folder / _STATE).write_bytes(msgspec.json.encode(cluster))
    return cluster


def _cluster_id() -> str:
    """Return a random id; Kafka's tools take one that begins with ``-`` for an option."""
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not found.startswith("-"):
            return found


def _format(cluster: Cluster, broker: Broker, security: Security | None) -> None:
    folder = cluster.process(broker.node_id).folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = folder / "server.properties"
    config.write_text(server_properties(broker, cluster.brokers, folder, security), "utf-8")
    command = _java(
        "kafka.tools.StorageTool", "format", "-t", cluster.cluster_id, "-c", str(config)
    )
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False
    )
    if ran.returncode != 0:
        said = (ran.stdout + ran.stderr).strip()
        raise DevError(
            "the storage of a broker", f"could not be formatted\n  {said}\n", "see above"
        )


def tool(main: str, *arguments: str) -> list[str]:
    """Return the command of one of Kafka's own tools, by its Java class."""
    return _java(main, *arguments)


def _java(main: str, *arguments: str) -> list[str]:
    java = require_tool("java", "runs the broker", "openjdk-17-jre-headless")
    logging = f"-Dlog4j2.configurationFile={project() / 'log4j2.properties'}"
    return [java, *HEAP, logging, "-cp", f"{broker_jars()}/*", main, *arguments]
