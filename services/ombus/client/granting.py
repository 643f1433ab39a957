"""Shared scopes of a session: who may read them, and who has (S19)."""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from ombus_schemas.grant_api import AccessAnswer, GrantAnswer, GrantRequest, GrantsAnswer
from ombus_schemas.jsontext import JsonValue

Answer = TypeVar("Answer", bound=msgspec.Struct)
Steer = Callable[[str, msgspec.Struct, type[GrantAnswer]], Awaitable[GrantAnswer]]


class Ask(Protocol):
    """Asks a route of the session that reads no leaf."""

    async def __call__(
        self, name: str, kind: type[Answer], said: Mapping[str, JsonValue]
    ) -> Answer: ...


class Shares:
    """What ``session.shares`` is. A grant or a revocation holds once it has returned.

    Raises, each of them: ScopeRefused: the scopes of the leaf do not allow it. ScopeLimit: it would
    pass a cap. NotTheOwner: somebody else owns the grants. BadRequest: an id is none.
    """

    def __init__(self, ask: Ask, steer: Steer) -> None:
        self._ask, self._steer = ask, steer

    async def grant(self, scope_id: str, readers: Sequence[str]) -> GrantAnswer:
        """Let sessions of the tenant read what is bound to a scope of this one."""
        return await self._steer("scopes/grant", _asked(scope_id, readers), GrantAnswer)

    async def revoke(self, scope_id: str, readers: Sequence[str]) -> GrantAnswer:
        """Let them read it no longer: the very next read of each, on any node, is denied."""
        return await self._steer("scopes/revoke", _asked(scope_id, readers), GrantAnswer)

    async def grants(self) -> GrantsAnswer:
        """Return who may read which scope."""
        return await self._ask("scopes/grants", GrantsAnswer, {})

    async def access(self, scope_id: str | None = None, limit: int = 100) -> AccessAnswer:
        """Return the last decisions of the gateway that answers for this session, newest first."""
        return await self._ask("scopes/access", AccessAnswer, {"scope": scope_id, "limit": limit})


def _asked(scope_id: str, readers: Sequence[str]) -> GrantRequest:
    entry_id = f"grant:{uuid.uuid4().hex}"
    return GrantRequest(scope_id=scope_id, principals=tuple(readers), entry_id=entry_id)
