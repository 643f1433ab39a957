"""How requests reach a gateway: over HTTP, or in this process. Both speak the same routes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

SINCE: Final = "sinceMs"
"""Of the query of an append: these entries may have been appended since then. A gateway knows that
by itself; whoever appends to the log directly has to look."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By lower-case names."""
    body: bytes


class Stream(Protocol):
    """An answer that goes on. ``body`` is that of a refusal, else empty."""

    @property
    def status(self) -> int: ...

    @property
    def body(self) -> bytes: ...

    def lines(self) -> AsyncIterator[str]: ...


class Transport(Protocol):
    """One way to a gateway.

    Raises:
        Unavailable: the gateway was not reached, or the connection broke.
    """

    async def request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Reply: ...

    def stream(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Stream]: ...

    async def close(self) -> None: ...
