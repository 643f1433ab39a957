"""The work scopes of a session as its host moves through them (S18)."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import msgspec
from msgspec import UNSET
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.scope_api import (
    ScopeAnswer,
    ScopeBinding,
    ScopeChoice,
    ScopeLeaving,
    ScopeMemoryAnswer,
    ScopeOpening,
    ScopesAnswer,
)

from ombus.client.errors import ScopeRefused

Answer = TypeVar("Answer", bound=msgspec.Struct)
Steer = Callable[[str, msgspec.Struct, type[ScopeAnswer]], Awaitable[ScopeAnswer]]


class Read(Protocol):
    """Asks for a read of the session."""

    async def __call__(
        self,
        name: str,
        kind: type[Answer],
        said: Mapping[str, JsonValue],
        where: Mapping[str, str],
    ) -> Answer: ...


class Scopes:
    """What ``session.scope`` is. A command holds once it has returned.

    Raises, each of the commands: ScopeRefused: the scopes do not allow it. ScopeLimit: it would
    pass a cap. BadRequest: an id or a reference is none.
    """

    def __init__(self, read: Read, steer: Steer) -> None:
        self._read, self._steer = read, steer

    async def open(
        self,
        scope_id: str,
        *,
        parent: str | None = None,
        kind: str | None = None,
        label: str | None = None,
    ) -> ScopeAnswer:
        """Open a scope; it exists from here on, once."""
        said = ScopeOpening(
            entry_id=_new(),
            id=scope_id,
            parent_id=UNSET if parent is None else parent,
            kind=UNSET if kind is None else kind,
            label=UNSET if label is None else label,
        )
        return await self._steer("scopes/open", said, ScopeAnswer)

    async def close(self, scope_id: str) -> ScopeAnswer:
        """Close a scope for good; its children stay as they are."""
        said = ScopeChoice(entry_id=_new(), scope_id=scope_id)
        return await self._steer("scopes/close", said, ScopeAnswer)

    async def enter(self, scope_id: str) -> ScopeAnswer:
        """Make a scope the place of the work: what is observed from here on is bound to it."""
        said = ScopeChoice(entry_id=_new(), scope_id=scope_id)
        return await self._steer("scopes/enter", said, ScopeAnswer)

    async def leave(self, scope_id: str | None = None) -> ScopeAnswer:
        """Go back one scope; with ``scope_id`` only if that one is on top."""
        said = ScopeLeaving(entry_id=_new(), scope_id=scope_id)
        return await self._steer("scopes/leave", said, ScopeAnswer)

    async def bind(self, scope_id: str, refs: Sequence[str]) -> ScopeAnswer:
        """Bind memory (``om:<id>``, ``reflection:<id>``) to a scope, a closed one too."""
        said = ScopeBinding(entry_id=_new(), scope_id=scope_id, refs=tuple(refs))
        return await self._steer("scopes/bind", said, ScopeAnswer)

    async def unbind(self, scope_id: str, refs: Sequence[str]) -> ScopeAnswer:
        """Unbind memory from a scope; recall by id still finds it."""
        said = ScopeBinding(entry_id=_new(), scope_id=scope_id, refs=tuple(refs))
        return await self._steer("scopes/unbind", said, ScopeAnswer)

    async def list(self, *, binds: bool = False, **where: str) -> ScopesAnswer:
        """Return the scopes of the leaf; with ``binds`` the references in each of them."""
        said: dict[str, JsonValue] = {"binds": "true"} if binds else {}
        return await self._read("scopes", ScopesAnswer, said, where)

    async def memory(
        self,
        scope_id: str | None = None,
        *,
        include: str = "self+ancestors",
        closed: bool = False,
        kinds: Sequence[str] = (),
        **where: str,
    ) -> ScopeMemoryAnswer:
        """Return the memory that is visible from a scope, or from where the work stands."""
        said: dict[str, JsonValue] = {
            "from": scope_id,
            "include": include,
            "closed": "include" if closed else None,
            "kinds": ",".join(kinds) or None,
        }
        return await self._read("scopes/memory", ScopeMemoryAnswer, said, where)

    @asynccontextmanager
    async def working_in(
        self,
        scope_id: str,
        *,
        parent: str | None = None,
        kind: str | None = None,
        label: str | None = None,
    ) -> AsyncIterator[str]:
        """Open the scope if it is missing, enter it, and leave it once, whatever the block does.

        One that is there keeps its label; a closed one is refused. It is never closed.
        """
        if not await self._is_there(scope_id):
            try:
                await self.open(scope_id, parent=parent, kind=kind, label=label)
            except ScopeRefused:
                # Another handle may have come first.
                if not await self._is_there(scope_id):
                    raise
        await self.enter(scope_id)
        try:
            yield scope_id
        finally:
            await self.leave(scope_id)

    async def _is_there(self, scope_id: str) -> bool:
        return any(row.id == scope_id for row in (await self.list()).scopes)


def _new() -> str:
    return f"scope:{uuid.uuid4().hex}"
