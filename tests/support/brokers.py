"""The Kafka and the Redis of a test run: given by the environment, in Docker, local, or none.

``OMBUS_TEST_KAFKA`` (bootstrap servers) and ``OMBUS_TEST_REDIS`` (a URL) come first; then
testcontainers when a Docker daemon answers; then ``ombus dev``. A test that can have none of them
is skipped with the reason, which ``--require kafka,redis`` turns into a failure. One broker serves
the whole run, and the run's summary names it with its version.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
from ombus.dev import kafka as dev_kafka
from ombus.dev import redis as dev_redis
from ombus.dev.errors import DevError, NotReady
from ombus.dev.jars import kafka_version
from ombus.dev.metadata import live_brokers
from ombus.dev.processes import HOST, free_ports

KAFKA: Final = "OMBUS_TEST_KAFKA"
REDIS: Final = "OMBUS_TEST_REDIS"
SERVICES: Final = ("kafka", "redis")
IN_DOCKER_WITHIN_SECONDS: Final = 120


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A server that tests may use."""

    address: str
    """Bootstrap servers, or a URL."""
    label: str
    """Name and version, for every result that is printed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        default="",
        metavar="kafka,redis",
        help="fail, and do not skip, the tests that cannot have these",
    )


def pytest_configure(config: pytest.Config) -> None:
    unknown = _required(config) - set(SERVICES)
    if unknown:
        raise pytest.UsageError(f"--require knows {', '.join(SERVICES)}, not {sorted(unknown)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop what this run has started; under xdist the controller does."""
    if hasattr(session.config, "workerinput"):
        return
    place = _place(session.config)
    dev_kafka.down(place / "kafka", wipe=True)
    dev_redis.down(place / "redis", wipe=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for label in sorted(_labels):
        terminalreporter.write_line(f"ran on {label}")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Service:
    """A Kafka broker for the whole run."""
    return _found("kafka", request.config, _kafka)


@pytest.fixture(scope="session")
def redis(request: pytest.FixtureRequest) -> Service:
    """A Redis server for the whole run."""
    return _found("redis", request.config, _redis)


_labels: set[str] = set()


def _found(name: str, config: pytest.Config, find: Callable[[pytest.Config], Service]) -> Service:
    try:
        service: Service | DevError = find(config)
    except DevError as error:
        service = error
    if isinstance(service, DevError):
        if name in _required(config):
            pytest.fail(f"--require {name}: {service}", pytrace=False)
        pytest.skip(f"no {name}: {service}")
    _labels.add(service.label)
    return service


def _required(config: pytest.Config) -> set[str]:
    return {name for name in str(config.getoption("--require")).split(",") if name}


def _kafka(config: pytest.Config) -> Service:
    given = os.environ.get(KAFKA)
    if given:
        label = os.environ.get(f"{KAFKA}_LABEL", "Apache Kafka of unknown version")
        return Service(address=given, label=label)
    with _alone(config, "kafka") as folder:
        if _docker_answers():
            service = _kafka_in_docker(folder)
        else:
            cluster = dev_kafka.up(folder)
            label = f"Apache Kafka {cluster.version}, local"
            service = Service(address=cluster.bootstrap, label=label)
    # Processes that a test starts find the same broker.
    os.environ[KAFKA], os.environ[f"{KAFKA}_LABEL"] = service.address, service.label
    return service


def _redis(config: pytest.Config) -> Service:
    given = os.environ.get(REDIS)
    if given:
        label = os.environ.get(f"{REDIS}_LABEL", "Redis of unknown version")
        return Service(address=given, label=label)
    with _alone(config, "redis") as folder:
        server = dev_redis.up(folder)
    service = Service(address=server.url, label=f"Redis {server.version}, local")
    os.environ[REDIS], os.environ[f"{REDIS}_LABEL"] = service.address, service.label
    return service


@contextmanager
def _alone(config: pytest.Config, name: str) -> Iterator[Path]:
    """Lend the folder of a server that all workers of the run share, to one of them at a time."""
    folder = _place(config) / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _place(config: pytest.Config) -> Path:
    """Return a folder that all workers of the run share."""
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    base = factory.getbasetemp()
    return base.parent if hasattr(config, "workerinput") else base


def _docker_answers() -> bool:
    try:
        import docker
    except ImportError:
        return False
    try:
        docker.from_env(timeout=5).ping()
    except Exception:
        # Whatever is wrong with it: there is another way to a broker.
        return False
    return True


def _kafka_in_docker(folder: Path) -> Service:
    from testcontainers.core.container import DockerContainer

    port_file = folder / "docker-port"
    if port_file.is_file():
        port = int(port_file.read_text("ascii"))
    else:
        (port,) = free_ports(1)
        container = DockerContainer(f"apache/kafka:{kafka_version()}").with_bind_ports(port, port)
        environment = {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": f"CLIENT://:{port},CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": f"CLIENT://{HOST}:{port}",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "CLIENT",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        }
        for name, value in environment.items():
            container.with_env(name, value)
        # testcontainers' own reaper ends it with the process that started it.
        container.start()
        deadline = time.monotonic() + IN_DOCKER_WITHIN_SECONDS
        while not live_brokers(HOST, port):
            if time.monotonic() > deadline:
                raise NotReady("apache/kafka in Docker", "does not answer", "see `docker logs`")
            time.sleep(0.2)
        port_file.write_text(f"{port}", "ascii")
    label = f"Apache Kafka {kafka_version()}, in Docker"
    return Service(address=f"{HOST}:{port}", label=label)
