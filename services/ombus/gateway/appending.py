"""Entries onto a session: admitted one by one, appended together, judged after the fold.

An entry without ``parentId`` hangs on the one before it in the request, the first one on the
default leaf. An id the session holds already is answered without another append, so whoever heard
no answer may send everything again.
"""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET
from ombus_schemas.admission import admit
from ombus_schemas.api import AppendAnswer, AppendRequest, EntryResult
from ombus_schemas.codec import encode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.permissions import Role
from ombus_streams.memory.tree import Known, known_as
from ombus_streams.runtime.ports import Position

from ombus.gateway.calls import Call
from ombus.gateway.hosting import Host
from ombus.gateway.limits import Limits
from ombus.gateway.metrics import Metrics
from ombus.gateway.problems import ApiError
from ombus.gateway.tokens import Principal
from ombus.memory_settings import workspaces_of
from ombus.offering import offered
from ombus.operator.control import open_session
from ombus.operator.desk import Desk

SETTINGS_CHANGED: Final = "om.settings.changed"
MAX_REMEMBERED: Final = 10_000
"""Sessions whose last append is remembered, to be folded before the next one."""


class _Appended(msgspec.Struct, frozen=True):
    """What an append came to, before the fold."""

    results: tuple[EntryResult, ...]
    position: Position | None
    """The last one that was appended."""
    expecting: tuple[str, ...]
    """Ids of entries whose ``expectedLeaf`` the fold has to judge."""


class Appending:
    """Answers appends, those of one session one after another."""

    def __init__(self, host: Host, limits: Limits, metrics: Metrics) -> None:
        self._host, self._limits, self._metrics = host, limits, metrics
        self._last: OrderedDict[bytes, Position] = OrderedDict()
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def answer(self, call: Call) -> AppendAnswer:
        """Append, and wait for the fold's verdict where a leaf was expected.

        Raises:
            ApiError: ``bad_request``, ``conflict``, ``rejected`` or ``behind``.
        """
        asked = call.decoded(AppendRequest)
        if not 0 < len(asked.entries) <= self._limits.max_entries:
            fact = f"entries holds 1 to {self._limits.max_entries:,} entries"
            raise ApiError("bad_request", fact)
        key, host = call.key, self._host
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            last = self._last.get(key)
            is_first = last is None
            # What hangs on the default leaf, and what is a duplicate, only the fold can say.
            if last is None:
                last = await host.caught_up(key)
            else:
                await host.until_folded(last)
            done = await host.call(lambda: _append(host.desk, call, asked, is_first=is_first))
            self._last[key] = done.position or last
            self._last.move_to_end(key)
            if len(self._last) > MAX_REMEMBERED:
                self._last.popitem(last=False)
        results = done.results
        if done.expecting and done.position is not None:
            await host.until_folded(done.position)
            results = await host.call(lambda: _judged(host.desk, key, done))
        self._metrics.appended(results)
        for status in ("conflict", "rejected"):
            if any(each.status == status for each in results):
                raise ApiError(status, results=results)
        position = done.position and str(done.position)
        position = position or next((each.position for each in reversed(results)), None)
        return AppendAnswer(session=call.path["session"], results=results, position=position)


class _Admitted(msgspec.Struct, frozen=True):
    entry: Entry


def _append(desk: Desk, call: Call, asked: AppendRequest, *, is_first: bool) -> _Appended:
    """Append what can be taken, in order. What the session holds already must be folded.

    ``is_first``: this process has not written to the session yet, so its settings are looked at.
    """
    tip = open_session(desk, call.key) if is_first else _tip(desk, call.key)
    batch = _Batch(desk, call, tip)
    found = [batch.one(value) for value in asked.entries]
    fresh = [each.entry for each in found if isinstance(each, _Admitted)]
    positions = desk.append(fresh)
    places = iter(positions)
    results = [
        EntryResult(id=each.entry.id, status="appended", position=str(next(places)))
        if isinstance(each, _Admitted)
        else each
        for each in found
    ]
    expecting = tuple(entry.id for entry in fresh if entry.expected_leaf is not None)
    return _Appended(tuple(results), positions[-1] if positions else None, expecting)


def _judged(desk: Desk, key: bytes, done: _Appended) -> tuple[EntryResult, ...]:
    """Return the results with the fold's verdict on those that expected a leaf."""
    lost: set[str] = set()
    with desk.engine.reading(key) as live:
        for entry_id in done.expecting:
            place = live.session.place_of(entry_id)
            if place is None or place.conflict or place.place != "chain":
                lost.add(entry_id)
    return tuple(
        msgspec.structs.replace(
            each,
            status="conflict",
            code="conflict",
            detail="expectedLeaf was not the leaf: read the branches and append again",
        )
        if each.id in lost and each.status == "appended"
        else each
        for each in done.results
    )


def _role_of(principal: Principal) -> Role:
    """Return as whom a caller's entries are admitted."""
    return "owner" if principal.roles & {"supervisor", "operator"} else "publisher"


class _Batch:
    """One request's entries, each hanging on the one before it."""

    def __init__(self, desk: Desk, call: Call, tip: str | None) -> None:
        self._desk, self._call, self._tip = desk, call, tip
        self._tenant, _, self._session = call.key.decode().partition("/")
        said = desk.policy(_role_of(call.principal))
        self._policy = msgspec.structs.replace(said, principal_id=call.principal.id)
        self._digest_by_id: dict[str, bytes] = {}

    def one(self, value: JsonObject) -> _Admitted | EntryResult:
        try:
            given = offered(value, self._tenant, self._session, self._desk.clock.now())
        except Rejected as error:
            return _refused(error)
        named = given.get("id")
        entry_id = named if isinstance(named, str) else ""
        for name, own in (("sessionId", self._session), ("tenantId", self._tenant)):
            if given[name] != own:
                return _rejected(entry_id, "session", f"{name} is not this session's")
        expected = given.get("expectedLeaf")
        if expected is not None and "parentId" not in given:
            given["parentId"] = expected
        try:
            entry = admit(given, self._policy)
        except Rejected as error:
            return _refused(error)
        if not self._may_give(entry):
            detail = "funnel.workspace names a session that is not the caller's to write"
            return _rejected(entry.id, "forbidden", detail)
        match self._known_as(entry):
            case "same":
                position = self._folded_at()
                if not entry.side:
                    self._tip = entry.id
                return EntryResult(id=entry.id, status="duplicate", position=position)
            case "other":
                return _rejected(entry.id, "id_taken", "the session has another entry of this id")
            case "new":
                self._digest_by_id[entry.id] = _digest(entry)
        if entry.parent_id is UNSET:
            entry = msgspec.structs.replace(entry, parent_id=self._tip)
        if not entry.side:
            self._tip = entry.id
        return _Admitted(entry)

    def _may_give(self, entry: Entry) -> bool:
        """Say whether the caller, or else the host, writes to wherever the entry's funnel leads."""
        if entry.data_type != SETTINGS_CHANGED:
            return True
        assert isinstance(entry.data, dict)
        said = entry.data.get("settings")
        named = workspaces_of(said) if isinstance(said, dict) else frozenset[str]()
        may_use = self._call.principal.may_use
        return all(map(may_use, named - workspaces_of(self._desk.settings.memory_said)))

    def _known_as(self, entry: Entry) -> Known:
        sent = self._digest_by_id.get(entry.id)
        if sent is not None:
            return "same" if sent == _digest(entry) else "other"
        with self._desk.engine.reading(self._call.key) as live:
            return known_as(live.session, entry)

    def _folded_at(self) -> str:
        with self._desk.engine.reading(self._call.key) as live:
            at = live.position
        return str(Position(at.incarnation, at.partition, at.offset - 1))


def _refused(error: Rejected) -> EntryResult:
    return _rejected(error.entry_id, error.code, f"{error.where} {error.detail}")


def _rejected(entry_id: str, code: str, detail: str) -> EntryResult:
    return EntryResult(id=entry_id, status="rejected", code=code, detail=detail)


def _digest(entry: Entry) -> bytes:
    content = msgspec.structs.replace(
        entry, parent_id=None, timestamp="", origin=None, expected_leaf=None
    )
    return hashlib.sha256(encode(content)).digest()


def _tip(desk: Desk, key: bytes) -> str | None:
    with desk.engine.reading(key) as live:
        segment = live.session.head.default_segment
        return live.session.leaf(segment).tip_id if segment else None
