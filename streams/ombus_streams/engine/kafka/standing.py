"""What a member knows of its group: until when it may answer for its partitions, and who has what.

The group protocol carries it: each member says its name and address when it joins, the leader
hands the whole assignment to everybody. A member may be wrong about others, never about itself:
the coordinator gives its partitions to nobody before the session timeout is over, which it counts
from a heartbeat that it got after it was sent.
"""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest

SESSION_TIMEOUT: Final = timedelta(seconds=6)
"""The broker's own lower bound: a silent owner's partitions move after it."""
_OK: Final = 0
_GONE: Final = frozenset({22, 25})
"""Illegal generation, unknown member: the group goes on without this one."""
_SEPARATOR: Final = "\n"


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A member that has partitions and an address."""

    instance: str
    address: str
    """A URL; empty of a member that answers nobody."""
    partitions: tuple[int, ...]


class Standing:
    """See the module. Written on the consumer's thread, read on any."""

    def __init__(
        self,
        instance: str,
        address: str | None = None,
        session_timeout: timedelta = SESSION_TIMEOUT,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.instance, self.address = instance, address
        self.owners: tuple[Owner, ...] = ()
        """Of the last assignment this member took part in."""
        self._timeout_s, self._now = session_timeout.total_seconds(), now
        self._renewed_at: float | None = None

    @property
    def is_current(self) -> bool:
        """Say whether nobody else can have this member's partitions yet."""
        renewed_at = self._renewed_at
        return renewed_at is not None and self._now() - renewed_at < self._timeout_s

    def owner_of(self, partition: int) -> Owner | None:
        """Return who had the partition when the group was last assigned."""
        for owner in self.owners:
            if partition in owner.partitions:
                return owner
        return None

    def introduction(self) -> bytes:
        """Return what this member says of itself when it joins."""
        parts = [self.instance, *([] if self.address is None else [self.address])]
        return _SEPARATOR.join(parts).encode()

    def assigned(self, directory: bytes) -> None:
        """Take in what the leader says of everybody; an older leader says nothing."""
        if directory:
            self.owners = msgspec.json.decode(directory, type=tuple[Owner, ...])

    def answered(self, sent_at: float, error_code: int) -> None:
        """Take in the coordinator's answer to what was sent at ``sent_at``.

        A rebalance under way renews nothing: this member is asked to let go.
        """
        if error_code == _OK:
            self._renewed_at = sent_at
        elif error_code in _GONE:
            self._renewed_at = None

    def watch(self, consumer: AIOKafkaConsumer) -> None:
        """Take in every answer that renews or ends the membership of a started consumer.

        aiokafka tells nobody of its heartbeats; all its requests go through one method.
        """
        coordinator: Any = consumer._coordinator
        send = coordinator._send_req

        async def sending(request: Any) -> Any:
            sent_at = self._now()
            answer = await send(request)
            if isinstance(request, HeartbeatRequest | SyncGroupRequest):
                self.answered(sent_at, answer.error_code)
            return answer

        coordinator._send_req = sending


def introduced(data: bytes) -> tuple[str, str]:
    """Return name and address of a member, the address empty if it has none."""
    instance, _, address = data.decode("utf-8", "replace").partition(_SEPARATOR)
    return instance, address


def directory(owners: Sequence[Owner]) -> bytes:
    """Return what the leader tells every member."""
    return msgspec.json.encode(owners)
