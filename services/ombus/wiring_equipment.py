"""The part of the composition root that equips whoever folds and works on Kafka.

A worker process and a gateway make their workers here, so that both judge owners, bound runs and
join groups in one way.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ombus_schemas.topics import ENTRIES
from ombus_streams.memory.head import FOLD_VERSION
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.owners import GrantsOwners
from ombus_streams.runtime.ports import Clock
from ombus_streams.runtime.telemetry import Telemetry

from ombus.settings import ProcessSettings
from ombus.wiring import staff_of
from ombus.wiring_kafka import Connection, open_kafka_log

if TYPE_CHECKING:
    from ombus_streams.engine.kafka.app import Membership
    from ombus_streams.engine.kafka.store import RocksState
    from ombus_streams.engine.kafka.worker import Worker

KAFKA_FOLDER: Final = "kafka"
"""Under the data folder: what this machine has folded from Kafka."""


def state_folder(data: Path, instance: str, role: str, version: int = FOLD_VERSION) -> Path:
    """Return where the rows of one role of one instance lie, for this fold version."""
    return data / KAFKA_FOLDER / instance / f"{role}-v{version}"


class Equipment:
    """What the workers of one process share. It is closed with ``opened``."""

    def __init__(
        self,
        settings: ProcessSettings,
        connection: Connection,
        instance: str,
        opened: ExitStack,
        *,
        topic: str,
        dead_letters: str,
        grants: str,
        clock: Clock,
        environ: Mapping[str, str],
        telemetry: Telemetry,
        timeout: timedelta | None = None,
    ) -> None:
        """Reach the brokers; ``timeout``: so long a call on the log of entries waits for them.

        Raises:
            BrokerError: see its way out.
        """
        from ombus_streams.engine.kafka.rocks import Memory

        self.settings, self.connection, self.instance = settings, connection, instance
        self.opened, self.clock = opened, clock
        self._environ, self._telemetry = environ, telemetry
        # Members of a group read the same topic.
        self.group_prefix = "ombus" if topic == ENTRIES else topic
        self.log = open_kafka_log(connection, topic, telemetry.tracer, timeout=timeout)
        opened.callback(self.log.close)
        self._letters = open_kafka_log(connection, dead_letters)
        opened.callback(self._letters.close)
        self._owners = GrantsOwners(lambda: open_kafka_log(connection, grants))
        opened.callback(self._owners.close)
        self._memory = Memory()

    def state(self, role: str, version: int = FOLD_VERSION) -> "RocksState":
        """Return the rows of a role.

        Raises:
            StoreError: see its way out.
        """
        from ombus_streams.engine.kafka.store import RocksState

        folder = state_folder(self.settings.folder, self.instance, role, version)
        state = RocksState(folder, self._memory)
        self.opened.callback(state.close)
        return state

    def worker(
        self,
        role: str,
        state: "RocksState",
        *,
        membership: "Membership | None" = None,
        address: str | None = None,
        news: Callable[[], None] | None = None,
    ) -> "Worker":
        """Return a worker over ``state``; the arguments after it are those of ``Worker``."""
        from ombus_streams.engine.kafka.admission import RunLimits
        from ombus_streams.engine.kafka.app import Membership
        from ombus_streams.engine.kafka.partition import FoldOptions
        from ombus_streams.engine.kafka.roles import ROLES
        from ombus_streams.engine.kafka.worker import Worker, WorkerOptions

        settings, models = self.settings, self.settings.models
        options = WorkerOptions(
            instance=self.instance,
            group_prefix=self.group_prefix,
            fold=FoldOptions(ahead=models.ahead),
            limits=RunLimits(
                max_runs=models.caps.max_runs, max_tenant_runs=models.caps.max_tenant_runs
            ),
            membership=membership or Membership(),
            address=address,
        )
        return Worker(
            ROLES[role], options, self.connection, self.log, self._letters, state,
            self.interpreter(), self.clock, settings.secrets, news, self._telemetry.of(role),
        )  # fmt: skip

    def interpreter(self) -> Interpreter:
        """Return what performs the runs of one worker."""
        staff = staff_of(self.settings, self.clock, self._environ)
        secrets = self.settings.secrets
        return Interpreter(staff, self.clock, secrets=secrets, owners=self._owners)
