"""Functions of the host around a delegation, named ``module:function``.

The one before is asked when every check has passed and may deny, replace the input, lower limits
and add permissions; a function that raises, takes too long or answers anything else has denied. The
one after is told how a delegation ended, at least once, and its answer counts for nothing: when
partitions move, their new owner tells the last ones again (``supervisor.KEPT_UNTOLD``).
"""

import asyncio
from typing import Final, Protocol

import msgspec
import structlog
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.supervision import Permission

from ombus_streams.runtime.callbacks import Function
from ombus_streams.supervision.checks import Approval, Grant
from ombus_streams.supervision.handle import Handle

SECONDS: Final = 5.0
MAX_DETAIL: Final = 500

_log = structlog.get_logger("ombus.hooks")


class Hooks(Protocol):
    """What the supervisor asks and tells of the host."""

    @property
    def has_before(self) -> bool: ...

    @property
    def has_after(self) -> bool: ...

    async def before(self, key: bytes, handle: Handle, grant: Grant) -> Approval:
        """Return what the host says; never raises for its faults."""
        ...

    async def after(self, key: bytes, handle: Handle) -> None:
        """Tell the host; never raises for its faults."""
        ...


class _Said(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a function may answer instead of true or false."""

    allow: bool = True
    reason: str = ""
    input: str | None = None
    limits: dict[str, int] = {}
    permissions: tuple[Permission, ...] = ()


class HostHooks:
    """See the module."""

    def __init__(self, before: str | None, after: str | None, seconds: float = SECONDS) -> None:
        """Import the functions.

        Raises:
            NoSuchCallback: a name leads to no function.
        """
        self._before = None if before is None else Function(before)
        self._after = None if after is None else Function(after)
        self._seconds = seconds

    @property
    def has_before(self) -> bool:
        return self._before is not None

    @property
    def has_after(self) -> bool:
        return self._after is not None

    async def before(self, key: bytes, handle: Handle, grant: Grant) -> Approval:
        if self._before is None:
            return Approval(is_allowed=True)
        tenant, _, session = key.decode().partition("/")
        asked: JsonObject = {
            "tenantId": tenant,
            "sessionId": session,
            "delegationId": handle.id,
            "childId": handle.child_id,
            "input": handle.input,
            "depth": grant.depth,
            "path": list(grant.path),
            "lifetime": handle.lifetime,
            "limits": dict(grant.limits),
        }
        try:
            answer = await asyncio.wait_for(self._before.call(asked), self._seconds)
            said = _Said(allow=answer) if isinstance(answer, bool) else _converted(answer)
        except Exception as error:  # a host's function may raise anything: that means no
            _log.warning("hook.failed", name=self._before.name, failure=type(error).__name__)
            return Approval(is_allowed=False, detail=f"the hook failed: {type(error).__name__}")
        return Approval(
            is_allowed=said.allow,
            detail=said.reason[:MAX_DETAIL],
            input=said.input,
            limits=said.limits,
            permissions=said.permissions,
        )

    async def after(self, key: bytes, handle: Handle) -> None:
        if self._after is None:
            return
        tenant, _, session = key.decode().partition("/")
        told: JsonObject = {
            "tenantId": tenant,
            "sessionId": session,
            "delegationId": handle.id,
            "childId": handle.child_id,
            "state": handle.state,
            "reason": handle.reason,
            "status": handle.status,
            "totalTokens": handle.total_tokens,
        }
        try:
            await asyncio.wait_for(self._after.call(told), self._seconds)
        except Exception as error:  # a host's function may raise anything
            _log.warning("hook.failed", name=self._after.name, failure=type(error).__name__)


def _converted(answer: object) -> _Said:
    return msgspec.convert(answer, _Said)
