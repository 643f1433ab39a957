"""The transport over HTTP. Needs the extra ``client``."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ombus.client.errors import Unavailable
from ombus.client.transport import Reply

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 90.0
"""Longer than the gateway waits at most for a flush, and than its heartbeats."""


class HttpTransport:
    """See the module. ``url`` is the gateway's, without ``/v1``."""

    def __init__(self, url: str, token: str | None = None) -> None:
        import httpx

        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout)
        self._errors = (httpx.TransportError,)

    async def request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Reply:
        try:
            answer = await self._http.request(method, path, params=dict(query), content=body)
        except self._errors as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        return Reply(status=answer.status_code, headers=answer.headers, body=answer.content)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator["HttpStream"]:
        try:
            asked = self._http.stream("GET", path, params=dict(query), headers=dict(headers))
            async with asked as answer:
                body = b"" if answer.status_code == 200 else await answer.aread()
                yield HttpStream(answer, body)
        except self._errors as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        await self._http.aclose()


class HttpStream:
    """Lines as they come."""

    def __init__(self, answer: "httpx.Response", body: bytes) -> None:
        self.status, self.body, self._answer = answer.status_code, body, answer

    async def lines(self) -> AsyncIterator[str]:
        async for line in self._answer.aiter_lines():
            yield line
