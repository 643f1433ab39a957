"""Shared scopes over HTTP: grants, revocations, who was let in, and what reads are shared.

Shared reads wait for the log, for Redis and for other gateways, so they have threads of their own:
what another gateway asks of this one never stands behind them.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
from ombus_schemas.grant_api import AccessAnswer, GrantRequest, ShareAnswer
from ombus_schemas.ids import is_scope_id
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.redaction import redact
from ombus_schemas.scope_routes import SHARING
from ombus_streams.memory.scope_controller import ScopeRefused
from ombus_streams.memory.shared import SharedMemory
from ombus_streams.memory.shared_rows import SharedBranch
from ombus_streams.runtime.row_branches import RowBranches
from ombus_streams.runtime.shared_reads import Asking

from ombus.gateway.calls import Call
from ombus.gateway.hosting import Host
from ombus.gateway.problems import ApiError
from ombus.operator.granting import (
    Act,
    BadGrant,
    GrantLimit,
    NotTheOwner,
    OtherTenant,
    Wanted,
    access_rows,
    carry_out,
    grants_of,
)
from ombus.operator.sharing import ScopeSharing

NAMES: Final = frozenset(route.name for route in SHARING)
MAX_DECISIONS: Final = 1_000

Found = TypeVar("Found")


class Granting:
    """See the module; ``open_sharing`` is called with the first request that needs it."""

    def __init__(
        self, host: Host, instance: str, open_sharing: Callable[[], ScopeSharing], threads: int
    ) -> None:
        self._host, self._instance, self._open = host, instance, open_sharing
        self._threads = ThreadPoolExecutor(threads, "ombus-shared")
        self._lock = threading.Lock()
        self._sharing: ScopeSharing | None = None
        self._branches = RowBranches(host.desk.engine.reading)

    async def resolved(self, asking: Asking) -> SharedMemory:
        """Return what is shared; the decisions are in the access log."""
        return await self._call(lambda: self._opened().reads.resolve(asking))

    async def answer(self, call: Call) -> msgspec.Struct:
        """Answer one of the routes of ``SHARING``.

        Raises:
            ApiError: ``bad_request``, ``scope_refused``, ``scope_limit``, ``not_the_owner``,
                ``behind`` or ``storage``.
        """
        key, session = call.key, call.path["session"]
        match call.route.name:
            case "scope_grant":
                return await self._changed(call, "grant")
            case "scope_revoke":
                return await self._changed(call, "revoke")
            case "scope_grants":
                return await self._call(lambda: grants_of(self._opened(), key))
            case "scope_share":
                return await self._host.call(lambda: self._share(call))
            case _:
                scope_id, limit = call.text("scope"), min(call.whole("limit") or 100, MAX_DECISIONS)
                rows = await self._call(lambda: access_rows(self._opened(), key, scope_id, limit))
                return AccessAnswer(session=session, instance=self._instance, decisions=rows)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            sharing, self._sharing = self._sharing, None
        if sharing is not None:
            await asyncio.to_thread(sharing.close)

    async def _changed(self, call: Call, act: Act) -> msgspec.Struct:
        said = call.decoded(GrantRequest)
        wanted = Wanted(
            act=act,
            scope_id=said.scope_id,
            principals=said.principals,
            # By name: whoever gets a new token in place of an old one still owns its grants.
            issuer=call.principal.name,
            entry_id=said.entry_id,
            leaf=said.leaf,
        )
        await self._host.caught_up(call.key)
        desk = self._host.desk
        try:
            return await self._call(lambda: carry_out(desk, self._opened(), call.key, wanted))
        except BadGrant as error:
            raise ApiError("bad_request", str(error)) from error
        except GrantLimit as error:
            raise ApiError("scope_limit", str(error)) from error
        except NotTheOwner as error:
            raise ApiError("not_the_owner", "whoever granted first owns them") from error
        except (OtherTenant, ScopeRefused) as error:
            raise ApiError("scope_refused", str(error)) from error

    def _share(self, call: Call) -> ShareAnswer:
        scope_id = call.text("scope") or ""
        if not is_scope_id(scope_id):
            raise ApiError("bad_request", "scope is no scope id")
        found = self._branches.fetch(call.key, scope_id, call.text("memory")) or SharedBranch()
        answer = ShareAnswer(**msgspec.structs.asdict(found))
        secrets = self._host.desk.settings.secrets
        if not secrets:
            return answer
        said: JsonValue = msgspec.json.decode(msgspec.json.encode(answer))
        return msgspec.convert(redact(said, secrets, max_depth=None), ShareAnswer)

    def _opened(self) -> ScopeSharing:
        with self._lock:
            if self._sharing is None:
                self._sharing = self._open()
            return self._sharing

    async def _call(self, ask: Callable[[], Found]) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
