"""A supervisor over a folder, stepped by hand under a manual clock."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from ombus_schemas.ids import session_key
from ombus_schemas.supervision import (
    ChildFailed,
    DelegationCancelled,
    DelegationError,
    DelegationFinished,
    DelegationHeartbeat,
    DelegationStarted,
    SupervisionEvent,
)
from ombus_streams.engine.embedded.supervision import Supervision
from ombus_streams.runtime.hooks import HostHooks
from ombus_streams.supervision.checks import ChildPolicy, HostPolicy
from ombus_streams.supervision.handle import Handle
from ombus_streams.supervision.limits import DEFAULT
from ombus_streams.supervision.parent import Parent, handle_of, parent_of

from tests.supervision.telling import PARENT, TENANT, entry_of, request

HOST: Final = HostPolicy(
    children={
        "lead": ChildPolicy(children=("scout",), session=True),
        "scout": ChildPolicy(session=True),
    },
    limits={**DEFAULT, "activeChildren": 2},
)
SECRET: Final = "correct-horse-battery"
Result = TypeVar("Result")


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self._now = datetime(2026, 11, 29, 10, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def move(self, ms: int) -> None:
        self._now += timedelta(milliseconds=ms)


class Office:
    """See the module."""

    def __init__(
        self, folder: Path, host: HostPolicy = HOST, hooks: HostHooks | None = None
    ) -> None:
        self.clock = ManualClock()
        self.folder, self._host = folder, host
        self._hooks = hooks or HostHooks(None, None)
        self.runner = asyncio.Runner()
        self.supervision = self._opened()

    def _opened(self) -> Supervision:
        made = Supervision(
            self.folder, self.clock, self._host, self._hooks, _redacted, partitions=2
        )
        assert made.own()
        return made

    def restart(self) -> None:
        self.supervision.close()
        self.supervision = self._opened()

    def close(self) -> None:
        self.supervision.close()
        self.runner.close()

    def settle(self) -> None:
        """Fold and decide until nothing more is due now."""
        supervisor = self.supervision.supervisor
        assert supervisor is not None
        while self.runner.run(self._step()) or supervisor.is_acting:
            pass

    def ask(self, n: int = 1, child_id: str = "scout", session: str = PARENT, **said: Any) -> str:
        body = request(n, child_id, session, **said)
        self.say(body, session)
        return body.delegation_id

    def say(self, body: SupervisionEvent, session: str = PARENT) -> None:
        self.supervision.append([entry_of(body, session)])
        self.settle()

    def claim(self, id: str, session: str = PARENT, epoch: int = 1, lease_ms: int = 5_000) -> None:
        self.say(self._of(DelegationStarted, id, session, epoch=epoch, lease_ms=lease_ms), session)

    def beat(self, id: str, session: str = PARENT, epoch: int = 1) -> None:
        self.say(self._of(DelegationHeartbeat, id, session, epoch=epoch), session)

    def finish(self, id: str, session: str = PARENT, epoch: int = 1) -> None:
        body = self._of(DelegationFinished, id, session, epoch=epoch, status="completed")
        self.say(body, session)

    def fail(self, id: str, session: str = PARENT, epoch: int = 1) -> None:
        self.say(self._of(ChildFailed, id, session, epoch=epoch, reason="crash"), session)

    def error(self, id: str, session: str = PARENT) -> None:
        self.say(self._of(DelegationError, id, session, error="crash"), session)

    def cancel(self, id: str, session: str = PARENT) -> None:
        self.say(self._of(DelegationCancelled, id, session, reason="host"), session)

    def handle(self, id: str, session: str = PARENT) -> Handle:
        key = session_key(TENANT, session)
        with self.supervision.rows(key) as rows:
            found = handle_of(rows, key, id)
        assert found is not None
        return found

    def parent(self, session: str = PARENT) -> Parent:
        key = session_key(TENANT, session)
        with self.supervision.rows(key) as rows:
            return parent_of(rows, key)

    def _of(
        self, kind: Callable[..., SupervisionEvent], id: str, session: str, **said: Any
    ) -> SupervisionEvent:
        child_id = self.handle(id, session).child_id
        return kind(child_id=child_id, delegation_id=id, **said)

    def _step(self) -> Coroutine[Any, Any, int]:
        return self.supervision.step()


def _redacted(text: str) -> str:
    return text.replace(SECRET, "[REDACTED]")
