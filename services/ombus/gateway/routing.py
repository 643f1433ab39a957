"""Which gateway answers for a session, and how a request gets there (design.md section 8).

Rows of a session are folded by one process, the owner of its partition. Whichever gateway is asked
passes the request on to it, over one hop and never a second: a gateway that is asked by another
one and is not the owner says ``moving``, and the first one looks again. Nobody answers from rows
that may not be the newest.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

import httpx
import msgspec
from ombus_schemas.api import Problem, SessionsAnswer
from ombus_streams.engine.kafka.standing import Owner
from ombus_streams.runtime.errors import NotServed
from ombus_streams.runtime.ports import EntryLog
from starlette.requests import Request
from starlette.responses import Response

from ombus.gateway.peers import PARTITIONS, Peers, target_of
from ombus.gateway.problems import UNTOUCHED, ApiError
from ombus.gateway.relaying import Relay
from ombus.gateway.tokens import Principal

FIND_SECONDS: Final = 3.0
"""How long a request waits for a partition that moves; then the caller is told."""
LOOK_SECONDS: Final = 0.05
CONNECT_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 1.0
"""After so long a read is answered from a replica, where there are any."""
ANSWER_SECONDS: Final = 90.0
"""Longer than any request may wait: it is the owner that ends it, or is the owner no more."""
ANSWERED_BY: Final = "ombus-answered-by"
"""Header: the instance whose rows were read; ``Ombus-Instance`` is the one that was asked."""
_PASSED_ON: Final = ("content-type", "last-event-id")
_PASSED_BACK: Final = (
    "content-type", "cache-control", "etag", "ombus-position", "retry-after", "x-request-id",
)  # fmt: skip

MayGoOn = Callable[[], bool]
Found = TypeVar("Found")


class Shared(Protocol):
    """What is asked of an engine that shares its log with others of its kind."""

    @property
    def log(self) -> EntryLog: ...

    @property
    def owners(self) -> tuple[Owner, ...]: ...

    @property
    def served(self) -> frozenset[int]: ...

    @property
    def has_replicas(self) -> bool: ...

    def owner_of(self, partition: int) -> Owner | None: ...

    def serves(self, partition: int) -> bool: ...

    def check(self, partition: int) -> object: ...


class _Moved(Exception):
    """Who was asked is not the owner any more."""


class _Part(msgspec.Struct, frozen=True):
    """The sessions of some partitions."""

    partitions: frozenset[int]
    answer: SessionsAnswer


class Router:
    """Passes requests on. ``address`` is this gateway's own."""

    def __init__(self, engine: Shared, peers: Peers, address: str, send_seconds: float) -> None:
        self.peers, self.address, self._engine = peers, address, engine
        self.n_relayed = 0
        """Tails that other gateways send through this one."""
        self._send_seconds = send_seconds
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        bounds = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        # No proxy stands between gateways; who signs their certificates the system says, or
        # SSL_CERT_FILE.
        trusted = ssl.create_default_context()
        self._http = httpx.AsyncClient(
            timeout=timeout, limits=bounds, verify=trusted, trust_env=False
        )

    @property
    def served(self) -> frozenset[int]:
        """The partitions this process answers for."""
        return self._engine.served

    @property
    def has_joined(self) -> bool:
        """Say whether this process knows who answers for what."""
        return bool(self._engine.owners)

    async def owner(self, key: bytes, *, is_read: bool) -> Owner | None:
        """Return who answers for a session; ``None``: this process does, if need be from a replica.

        Raises:
            NotServed: nobody does, also after a while.
        """
        partition = self._engine.log.partition_of(key)
        deadline = _now() + FIND_SECONDS
        while True:
            owner = self._engine.owner_of(partition)
            if owner is not None and owner.address not in ("", self.address):
                return owner
            if self._engine.serves(partition) or (is_read and self._engine.has_replicas):
                return None
            if _now() > deadline:
                self._engine.check(partition)
                raise NotServed(partition)
            await asyncio.sleep(LOOK_SECONDS)

    def check(self, key: bytes) -> None:
        """Return if this process answers for a session that another gateway asks about.

        Raises:
            ApiError: ``moving`` or ``behind``, and nothing was done.
        """
        try:
            self._engine.check(self._engine.log.partition_of(key))
        except NotServed as error:
            if error.folded is not None:
                raise
            raise ApiError("moving", retry_after=1, is_untouched=True) from error

    async def passed_on(
        self,
        request: Request,
        principal: Principal,
        key: bytes,
        body: bytes,
        owner: Owner,
        may_go_on: MayGoOn | None = None,
    ) -> Response | None:
        """Return the owner's answer; ``None``: this process is to answer by now.

        ``may_go_on``: the answer is a stream. What reached nobody, or is known to have done
        nothing, is sent again, and so is a read whose answer did not come.

        Raises:
            NotServed: nobody answers for the session, also after a while.
            ApiError: ``moving``: it may have been done.
        """
        partition = self._engine.log.partition_of(key)
        deadline, found = _now() + FIND_SECONDS, owner
        is_read = request.method == "GET" and may_go_on is None
        while True:
            try:
                response = await self._asked(request, principal, partition, body, found, may_go_on)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                response = None
            except (httpx.TransportError, _Moved) as error:
                response = None
                if request.method != "GET":
                    fact = "it may have been done: ask again with the same ids"
                    raise ApiError("moving", fact, retry_after=1) from error
            if response is not None:
                return response
            if is_read and self._engine.has_replicas:
                return None
            if _now() > deadline:
                raise NotServed(partition)
            await asyncio.sleep(LOOK_SECONDS)
            again = await self.owner(key, is_read=is_read)
            if again is None:
                return None
            found = again

    async def sessions(
        self,
        request: Request,
        principal: Principal,
        own: Callable[[], Awaitable[SessionsAnswer]],
        limit: int,
    ) -> SessionsAnswer:
        """Return a page of the sessions of all partitions; ``own`` lists this process's.

        Raises:
            NotServed: a partition is answered for by nobody, also after a while.
        """
        deadline = _now() + FIND_SECONDS
        while True:
            owners = [each for each in self._engine.owners if each.partitions]
            asked = (self._part(request, principal, each, own) for each in owners)
            parts = await asyncio.gather(*asked)
            covered = frozenset(each for part in parts for each in part.partitions)
            missing = frozenset(range(self._engine.log.partitions)) - covered
            if not missing:
                return _merged([part.answer for part in parts], limit)
            if _now() > deadline:
                raise NotServed(min(missing))
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        await self._http.aclose()

    async def _asked(
        self,
        request: Request,
        principal: Principal,
        partition: int,
        body: bytes,
        owner: Owner,
        may_go_on: MayGoOn | None,
    ) -> Response | None:
        """Return the answer; ``None``: it is known that nothing was done."""

        is_patient = may_go_on is not None or request.method != "GET"
        silent_at = _now() + SILENT_SECONDS

        def is_owner() -> bool:
            now = self._engine.owner_of(partition)
            is_late = not is_patient and self._engine.has_replicas and _now() > silent_at
            return now is not None and now.address == owner.address and not is_late

        url = _url(owner, request)
        headers = {
            name: value for name in _PASSED_ON if (value := request.headers.get(name)) is not None
        }
        asked = self._http.build_request(
            request.method,
            url,
            headers={**headers, **self.peers.signed(request.method, url.raw_path, principal)},
            content=body,
        )
        answer = await _while(is_owner, self._http.send(asked, stream=True))
        back = {
            name: value for name in _PASSED_BACK if (value := answer.headers.get(name)) is not None
        }
        back[ANSWERED_BY] = answer.headers.get("ombus-instance", owner.instance)
        if may_go_on is not None and answer.status_code == 200:
            return Relay(answer, back, may_go_on, self._send_seconds)
        try:
            content = await _while(is_owner, answer.aread())
        finally:
            await answer.aclose()
        is_again = _is_moving(answer) and (request.method == "GET" or UNTOUCHED in answer.headers)
        return None if is_again else Response(content, answer.status_code, back)

    async def _part(
        self,
        request: Request,
        principal: Principal,
        owner: Owner,
        own: Callable[[], Awaitable[SessionsAnswer]],
    ) -> _Part:
        """Return what one owner has; nothing, if it does not say so."""
        nothing = _Part(frozenset(), SessionsAnswer(sessions=(), next=None))
        if owner.address == self.address:
            before = self._engine.served
            try:
                answer = await own()
            except NotServed:
                return nothing
            return _Part(before & self._engine.served, answer)
        url = _url(owner, request)
        headers = self.peers.signed("GET", url.raw_path, principal)
        try:
            said = await self._http.get(url, headers=headers, timeout=FIND_SECONDS)
        except httpx.TransportError:
            return nothing
        if said.status_code != 200:
            return nothing
        numbers = said.headers.get(PARTITIONS, "").split()
        answer = msgspec.json.decode(said.content, type=SessionsAnswer)
        return _Part(frozenset(map(int, numbers)), answer)


def _merged(answers: list[SessionsAnswer], limit: int) -> SessionsAnswer:
    rows = sorted((row for each in answers for row in each.sessions), key=lambda row: row.session)
    is_more = len(rows) > limit or any(each.next is not None for each in answers)
    page = tuple(rows[:limit])
    return SessionsAnswer(sessions=page, next=page[-1].session if is_more and page else None)


def _is_moving(answer: httpx.Response) -> bool:
    if answer.status_code != 503:
        return False
    try:
        return msgspec.json.decode(answer.content, type=Problem).code == "moving"
    except msgspec.DecodeError:
        return False


async def _while(holds: Callable[[], bool], work: Awaitable[Found]) -> Found:
    """Return what ``work`` returns; it is given up when ``holds`` does not hold any more."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=4 * LOOK_SECONDS)
            if done:
                return task.result()
            if not holds():
                raise _Moved
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _url(owner: Owner, request: Request) -> httpx.URL:
    """Return the request's own target at the owner, quoted as it goes over the wire.

    Raises:
        ApiError: ``bad_request``: it cannot be written as a URL, or means another one there.
    """
    target = target_of(request)
    try:
        url = httpx.URL(owner.address).copy_with(raw_path=target)
    except (httpx.InvalidURL, ValueError) as error:
        raise ApiError("bad_request", "path or query is no URL: quote it") from error
    if unquote_to_bytes(url.raw_path) != unquote_to_bytes(target):
        raise ApiError("bad_request", "the path is no plain one: quote it")
    return url
