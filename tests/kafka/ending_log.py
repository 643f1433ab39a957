"""A log on which whoever folds partition 0 ends after its first page."""

import os
import signal
from collections.abc import Callable
from functools import partial

from ombus_streams.engine.kafka.broker_errors import BrokerUnavailable
from ombus_streams.engine.kafka.connection import Connection
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import LogRecord


class EndingLog(KafkaLog):
    is_killed = True

    def read(self, partition: int, offset: int, max_records: int) -> list[LogRecord]:
        if partition == 0 and offset > 0:
            if self.is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise BrokerUnavailable("topic t", "nobody answers", "start the brokers")
        return super().read(partition, offset, max_records)


def opens_ending_log(
    connection: Connection, topic: str, is_killed: bool
) -> Callable[[], EndingLog]:
    """Return what opens such a log in another process."""
    return partial(_opened, connection, topic, is_killed)


def _opened(connection: Connection, topic: str, is_killed: bool) -> EndingLog:
    log = EndingLog(connection, topic)
    log.is_killed = is_killed
    return log
