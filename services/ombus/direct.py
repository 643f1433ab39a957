"""The client's transport that appends to Kafka itself; reads go to a gateway, if one is given.

Entries are admitted here as a gateway would, and hang on each other in the order they come. The
first one of a session hangs on its newest chain entry. Nothing that may be on the log is appended
without a look: before the first append of a session, and after one whose outcome is not known, what
came to the partition since is read. So an id is on the log once, as long as no request to a broker
outlives its connection.

Whoever appends directly is trusted with the topic: see `ombus topics acl --direct`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import UNSET
from ombus_schemas import api
from ombus_schemas.admission import Policy, admit
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.headers import headers_of
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.permissions import Role
from ombus_schemas.problems import STATUS_BY_CODE
from ombus_schemas.route import PREFIX
from ombus_schemas.topics import ENTRIES
from ombus_streams.runtime.errors import RetryableError, RuntimeFault
from ombus_streams.runtime.ports import Clock, Draft, Position

from ombus.client.errors import BadRequest, Refused, Unavailable
from ombus.client.transport import SINCE, Reply, Stream, Transport
from ombus.lines import calm
from ombus.offering import offered
from ombus.opened import Newest, newest_at, newest_on, settings_entry
from ombus.recent import Recent
from ombus.settings import ProcessSettings, load_settings, settings_files
from ombus.wiring import SystemClock
from ombus.wiring_kafka import Connection, connection_for, open_kafka_log

if TYPE_CHECKING:
    from ombus_streams.engine.kafka.log import KafkaLog

MAX_THREADS: Final = 32
"""Sessions whose appends are under way at once; they share record batches."""
LOOK_BACK: Final = timedelta(minutes=10)
"""What a process that was killed may have appended before is looked for so far back."""
_ENTRIES_PATH: Final = (f"{PREFIX}/sessions/", "/entries")

Result = TypeVar("Result")


def open_direct(url: str, gateway: Transport | None) -> Transport:
    """Return the transport for ``kafka://HOST:PORT,...``, or ``kafka://`` for what settings say.

    Raises:
        BadRequest: nothing says where the brokers are, or the settings make no sense.
    """
    # What the Kafka client says on its own behalf, our errors say better.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    calm()
    environ = dict(os.environ)
    files = settings_files(environ, Path.cwd())
    servers = url.removeprefix("kafka://").strip("/")
    try:
        settings = load_settings({}, environ, files)
        connection = connection_for(environ, files, servers or None)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return Direct(connection, settings, gateway)


class Direct:
    """See the module. ``role``: as whom entries are admitted."""

    def __init__(
        self,
        connection: Connection,
        settings: ProcessSettings,
        gateway: Transport | None = None,
        *,
        topic: str = ENTRIES,
        role: Role = "publisher",
        clock: Clock | None = None,
    ) -> None:
        self._connection, self._settings, self._topic = connection, settings, topic
        self._gateway, self._clock = gateway, clock or SystemClock()
        self._policy = Policy(
            role=role, secrets=settings.secrets, patterns=settings.redact_patterns
        )
        self._threads = ThreadPoolExecutor(MAX_THREADS, "ombus-direct")
        self._opening = asyncio.Lock()
        self._log: KafkaLog | None = None
        self._recent: dict[int, Recent] = {}
        self._known: set[bytes] = set()
        """Sessions that were looked for on the log, with nothing unknown since."""

    async def request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """Append here, or let the gateway answer."""
        before, after = _ENTRIES_PATH
        is_append = method == "POST" and path.startswith(before) and path.endswith(after)
        if not is_append:
            return await self._asked().request(method, path, query, body)
        asked = msgspec.json.decode(body or b"{}", type=api.AppendRequest)
        if any(entry.get("expectedLeaf") is not None for entry in asked.entries):
            # Whether it was lost only a fold can say.
            return await self._asked().request(method, path, query, body)
        session = path.removeprefix(before).removesuffix(after)
        try:
            return await self._append(session, asked.entries, int(query.get(SINCE, "0")))
        except RetryableError as error:
            raise Unavailable(str(error)) from error
        except RuntimeFault as error:
            raise Refused(str(error), "storage") from error

    def stream(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Stream]:
        return self._asked().stream(path, query, headers)

    async def close(self) -> None:
        if self._gateway is not None:
            await self._gateway.close()
        if self._log is not None:
            await self._run(self._log.close)
        self._threads.shutdown(wait=False)

    def _asked(self) -> Transport:
        if self._gateway is None:
            raise BadRequest(
                "this needs a gateway: Client('kafka://...', gateway='http://...') has one"
            )
        return self._gateway

    async def _append(self, session: str, values: Sequence[JsonObject], since_ms: int) -> Reply:
        """``since_ms``: when these may have been appended first; 0: now."""
        key = session_key(self._settings.tenant, session)
        log = await self._opened()
        partition = log.partition_of(key)
        recent = self._recent.setdefault(partition, Recent(log, partition))
        since_ms = (since_ms or self._now_ms()) - LOOK_BACK // timedelta(milliseconds=1)
        if key not in self._known or not recent.reaches(since_ms):
            async with recent.looking:
                await self._run(lambda: recent.catch_up(since_ms))
        batch = _Batch(self._settings.tenant, session, self._policy, self._clock, recent)
        results = [batch.one(value) for value in values]
        fresh = batch.fresh
        if fresh and fresh[0].parent_id is UNSET:
            newest = await self._newest(log, session, key)
            fresh = self._opening_of(key, newest) + batch.hung(newest.id)
        try:
            positions = await self._run(lambda: log.append([_draft(entry) for entry in fresh]))
        except RetryableError:
            self._known.discard(key)
            raise
        self._known.add(key)
        at: dict[str, str] = {}
        for entry, place in zip(fresh, positions, strict=True):
            at[entry.id] = str(place)
            recent.note(key, entry.id.encode(), place.offset)
        return _reply(session, [_placed(each, at) for each in results])

    async def _newest(self, log: "KafkaLog", session: str, key: bytes) -> Newest:
        if self._gateway is None:
            return await self._run(lambda: newest_on(log, key))
        partition = log.partition_of(key)
        end = await self._run(lambda: log.end(partition))
        at = Position(log.incarnation, partition, end)
        return await newest_at(self._gateway, session, at)

    def _opening_of(self, key: bytes, newest: Newest) -> list[Entry]:
        """Return what must stand before the first entry of a new session: its settings."""
        if newest.id is not None or not newest.is_new:
            return []
        entry = settings_entry(key, self._settings, self._clock.now())
        return [] if entry is None else [entry]

    async def _opened(self) -> "KafkaLog":
        """Return the log. The brokers may be away when the process starts."""
        async with self._opening:
            if self._log is None:
                self._log = await self._run(lambda: open_kafka_log(self._connection, self._topic))
            return self._log

    async def _run(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1_000)


class _Batch:
    """The entries of one request, each hanging on the one before it."""

    def __init__(
        self, tenant: str, session: str, policy: Policy, clock: Clock, recent: Recent
    ) -> None:
        self._tenant, self._session, self._policy = tenant, session, policy
        self._clock, self._recent = clock, recent
        self._key = session_key(tenant, session)
        self._tip: str | None = None
        self.fresh: list[Entry] = []
        """To be appended, in order; those before the first chain entry may lack a parent."""

    def one(self, value: JsonObject) -> api.EntryResult:
        try:
            given = offered(value, self._tenant, self._session, self._clock.now())
        except Rejected as error:
            return _refused(error)
        named = given.get("id")
        entry_id = named if isinstance(named, str) else ""
        for name, own in (("sessionId", self._session), ("tenantId", self._tenant)):
            if given[name] != own:
                detail = f"{name} is not this session's"
                return api.EntryResult(
                    id=entry_id, status="rejected", code="session", detail=detail
                )
        try:
            entry = admit(given, self._policy)
        except Rejected as error:
            return _refused(error)
        sent = any(entry.id == each.id for each in self.fresh)
        place = self._recent.position_of(self._key, entry.id)
        if entry.parent_id is UNSET and self._tip is not None:
            entry = msgspec.structs.replace(entry, parent_id=self._tip)
        if not entry.side:
            self._tip = entry.id
        if sent or place is not None:
            said = None if place is None else str(place)
            return api.EntryResult(id=entry.id, status="duplicate", position=said)
        self.fresh.append(entry)
        return api.EntryResult(id=entry.id, status="appended")

    def hung(self, newest_id: str | None) -> list[Entry]:
        """Return the fresh entries; those without a parent hang on ``newest_id``."""
        return [
            msgspec.structs.replace(entry, parent_id=newest_id)
            if entry.parent_id is UNSET
            else entry
            for entry in self.fresh
        ]


def _draft(entry: Entry) -> Draft:
    return Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))


def _refused(error: Rejected) -> api.EntryResult:
    detail = f"{error.where} {error.detail}"
    return api.EntryResult(id=error.entry_id, status="rejected", code=error.code, detail=detail)


def _placed(result: api.EntryResult, at: Mapping[str, str]) -> api.EntryResult:
    if result.position is not None or result.id not in at:
        return result
    return msgspec.structs.replace(result, position=at[result.id])


def _reply(session: str, results: Sequence[api.EntryResult]) -> Reply:
    """Return what a gateway would answer."""
    positions = [each.position for each in results if each.position is not None]
    if any(each.status == "rejected" for each in results):
        status, title = STATUS_BY_CODE["rejected"]
        problem = api.Problem(
            type="urn:ombus:problem:rejected", title=title, status=status, code="rejected",
            request_id="", results=tuple(results),
        )  # fmt: skip
        return Reply(status=status, headers={}, body=msgspec.json.encode(problem))
    answer = api.AppendAnswer(
        session=session, results=tuple(results), position=positions[-1] if positions else None
    )
    return Reply(status=200, headers={}, body=msgspec.json.encode(answer))
