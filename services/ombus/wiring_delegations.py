"""The part of the composition root that folds delegations from Kafka, and decides about them."""

from functools import partial
from typing import TYPE_CHECKING

from ombus_schemas.topics import SUPERVISION
from ombus_streams.runtime.hooks import HostHooks
from ombus_streams.runtime.ports import Clock
from ombus_streams.supervision.parent import FOLD_VERSION

from ombus.settings import ProcessSettings
from ombus.wiring import SystemClock
from ombus.wiring_kafka import Connection, open_kafka_log, require_extra
from ombus.wiring_supervision import concealed

if TYPE_CHECKING:
    from ombus_streams.engine.kafka.supervision import KafkaSupervision

__all__ = ["open_kafka_supervision"]


def open_kafka_supervision(
    settings: ProcessSettings,
    connection: Connection,
    rows: str,
    *,
    instance: str | None = None,
    topic: str = SUPERVISION,
    clock: Clock | None = None,
) -> "KafkaSupervision":
    """Return this machine's own fold of all delegations on Kafka, kept under ``rows``.

    ``instance``: it is also a member of the group that decides, under this name.

    Raises:
        BrokerError, StoreError, NoSuchCallback: see their way out.
        BadSetting: the extra is not installed.
    """
    require_extra()
    from ombus_streams.engine.kafka.store import RocksState
    from ombus_streams.engine.kafka.supervision import KafkaSupervision

    said = settings.supervision
    log = open_kafka_log(connection, topic)
    state: RocksState | None = None
    try:
        folder = settings.folder / "kafka" / rows / f"delegations-v{FOLD_VERSION}"
        state = RocksState(folder)
        return KafkaSupervision(
            connection,
            log,
            state,
            said.policy(),
            HostHooks(said.before, said.after, said.hook_seconds),
            clock or SystemClock(),
            partial(concealed, settings),
            instance=instance,
            # Members of a group read the same topic.
            group_prefix="ombus" if topic == SUPERVISION else topic,
        )
    except BaseException:
        if state is not None:
            state.close()
        log.close()
        raise
