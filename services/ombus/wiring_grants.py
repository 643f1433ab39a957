"""The part of the composition root that shares scopes: grants, their maps, and who was let in.

In a data folder the grants log lies beside the entries and is read directly. On Kafka gateways read
the maps that the granter keeps in Redis (``[redis]``, ``OMBUS_REDIS_*``); without a Redis each
folds the small topic for itself.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from ombus_schemas.topics import GRANTS
from ombus_streams.engine.embedded.access import AccessFile
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.redis.connection import RedisConnection
from ombus_streams.memory.shared import SharedMemory
from ombus_streams.runtime.grant_fold import GrantFolds
from ombus_streams.runtime.grants import Branches, GrantStore
from ombus_streams.runtime.metrics import Tally
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.row_branches import RowBranches
from ombus_streams.runtime.shared_reads import SharedReads

from ombus.connections import said_of
from ombus.operator.desk import Desk
from ombus.operator.lookup import Lens
from ombus.operator.sharing import ScopeSharing, asking_of
from ombus.settings import REDIS_KEY, BadSetting
from ombus.wiring_kafka import Connection, open_kafka_log, require_extra
from ombus.wiring_owners import FOLDER

if TYPE_CHECKING:
    from ombus_streams.engine.granter import Granter

__all__ = [
    "RedisConnection",
    "open_granter",
    "open_kafka_sharing",
    "open_sharing",
    "redis_for",
    "shared_with",
]


def open_sharing(desk: Desk) -> ScopeSharing:
    """Return the sharing of a data folder.

    Raises:
        StorageError: see its way out.
    """
    settings = desk.settings
    with ExitStack() as opened:
        log = SqliteLog(settings.folder / FOLDER, desk.clock, topic=GRANTS)
        opened.callback(log.close)
        access = AccessFile(settings.folder)
        opened.callback(access.close)
        folds = GrantFolds(log)
        # The engine of a desk changes when the desk takes the folder over.
        branches = RowBranches(lambda key: desk.engine.reading(key))
        tally = desk.engine.telemetry.tally
        reads = SharedReads(log, folds, branches, access, desk.clock, tally=tally)
        return ScopeSharing(log, access, reads, folds, opened.pop_all().close)


def shared_with(desk: Desk, lens: Lens, memory_id: str | None = None) -> SharedMemory | None:
    """Return what is shared with a leaf, for a command that reads once.

    Raises:
        StorageError: see its way out.
    """
    asking = asking_of(lens, memory_id)
    if asking is None:
        return None
    with closing(open_sharing(desk)) as sharing:
        return sharing.reads.resolve(asking)


def open_kafka_sharing(
    connection: Connection,
    redis: RedisConnection | None,
    folder: Path,
    branches: Branches,
    clock: Clock,
    topic: str = GRANTS,
    tally: Tally | None = None,
) -> ScopeSharing:
    """Return the sharing of a gateway on Kafka; ``folder`` keeps its access log.

    Raises:
        BrokerError, StorageError: see their way out.
        BadSetting: an extra is not installed.
    """
    require_extra()
    from ombus_streams.engine.kafka.grant_topic import GrantEnds

    with ExitStack() as opened:
        log = open_kafka_log(connection, topic)
        opened.callback(log.close)
        ends = GrantEnds(connection, log)
        opened.callback(ends.close)
        access = AccessFile(folder)
        opened.callback(access.close)
        folds = GrantFolds(log)
        store: GrantStore = folds
        if redis is not None:
            _require_redis()
            from ombus_streams.engine.redis.maps import RedisMaps

            maps = RedisMaps(redis)
            opened.callback(maps.close)
            store = maps
        reads = SharedReads(ends, store, branches, access, clock, tally=tally)
        return ScopeSharing(log, access, reads, folds, opened.pop_all().close)


def open_granter(
    instance: str,
    connection: Connection,
    redis: RedisConnection,
    opened: ExitStack,
    topic: str = GRANTS,
) -> "Granter":
    """Return the granter; what it needs is closed with ``opened``.

    Raises:
        BrokerError: see its way out.
        BadSetting: an extra is not installed.
    """
    require_extra()
    _require_redis()
    from ombus_streams.engine.granter import Granter
    from ombus_streams.engine.redis.maps import RedisMaps

    log = open_kafka_log(connection, topic)
    opened.callback(log.close)
    maps = RedisMaps(redis)
    opened.callback(maps.close)
    return Granter(instance, connection, log, maps)


def redis_for(environ: Mapping[str, str], files: Sequence[Path]) -> RedisConnection | None:
    """Return how to reach Redis, ``None`` if nothing names one; files go from weak to strong.

    Raises:
        BadSetting: a setting is unknown or contradicts another.
    """
    said = said_of(REDIS_KEY, environ, files)
    if not said.values:
        return None
    return said.read_as(RedisConnection, ["password", "sentinel-password"], is_text=True)


def _require_redis() -> None:
    try:
        import ombus_streams.engine.redis.maps
    except ModuleNotFoundError as error:
        raise BadSetting("redis", "needs an extra: pip install 'ombus[redis]'") from error
    assert ombus_streams.engine.redis.maps
