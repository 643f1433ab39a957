"""Entries from a stream onto a session, each acknowledged once it is durable.

A line is a message (``role`` and ``content``) or an entry as the wire has it. Without ``parentId``
it hangs on the last append of this feed, the first one on the default leaf. An id the session holds
already is acknowledged without another append, so whoever was killed may send everything again.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec
from msgspec import UNSET
from ombus_schemas.admission import admit
from ombus_schemas.codec import encode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.jsontext import JsonValue
from ombus_streams.memory.coverage import SOURCE_ROLES
from ombus_streams.memory.tree import Known, known_as

from ombus.offering import offered
from ombus.operator.control import open_session
from ombus.operator.desk import Desk

_HEARD: Final = SOURCE_ROLES | {"system"}
"""Roles that are what they are meant to be; another one is perhaps a slip."""
_SHAPE: Final = 'a line is {"role": "user", "content": "…"} or an entry'


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is on the log and stays there."""

    id: str
    status: Literal["appended", "duplicate"]
    position: str | None
    """``None`` for a duplicate: it was appended before."""


class NotTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was not appended."""

    line: int
    reason: str


class Feed:
    """One handle on one session. Open it when the log is folded up to now."""

    def __init__(self, desk: Desk, key: bytes) -> None:
        self._desk, self._key = desk, key
        self._tenant, _, self._session = key.decode().partition("/")
        self._policy = desk.policy("owner")
        self._tip = open_session(desk, key)
        self._digest_by_id: dict[str, bytes] = {}
        self._n_lines = 0
        self.kept_only: Counter[str] = Counter()
        """How many messages of each role were appended that no worker ever reads."""

    def take(self, lines: Sequence[bytes]) -> Iterator[Acknowledged | NotTaken]:
        """Append what is new among ``lines``, all of it at once, and yield one answer a line.

        Empty lines are counted and answered by nothing.
        """
        answers: list[Acknowledged | NotTaken | Entry] = []
        for line in lines:
            self._n_lines += 1
            if line.strip():
                answers.append(self._one(line))
        fresh = [each for each in answers if isinstance(each, Entry)]
        positions = iter(self._desk.append(fresh))
        for answer in answers:
            if isinstance(answer, Entry):
                position = str(next(positions))
                yield Acknowledged(id=answer.id, status="appended", position=position)
            else:
                yield answer

    def _one(self, line: bytes) -> Acknowledged | NotTaken | Entry:
        try:
            value: JsonValue = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return NotTaken(line=self._n_lines, reason=f"is no JSON: {error}; {_SHAPE}")
        if not isinstance(value, dict):
            return NotTaken(line=self._n_lines, reason=f"is no object; {_SHAPE}")
        try:
            given = offered(value, self._tenant, self._session, self._desk.clock.now())
        except Rejected as error:
            reason = f"{error.where} {error.detail}; {_SHAPE}"
            return NotTaken(line=self._n_lines, reason=reason)
        for name, own in (("sessionId", self._session), ("tenantId", self._tenant)):
            if given[name] != own:
                fact = f"{name} is {given[name]!r}, this feed is for {own}"
                return NotTaken(line=self._n_lines, reason=fact)
        try:
            entry = admit(given, self._policy)
        except Rejected as error:
            return NotTaken(line=self._n_lines, reason=str(error))
        match self._known_as(entry):
            case "same":
                return Acknowledged(id=entry.id, status="duplicate", position=None)
            case "other":
                fact = f"the session holds another entry with the id {entry.id}"
                return NotTaken(line=self._n_lines, reason=fact)
            case "new":
                self._digest_by_id[entry.id] = _digest(entry)
        if entry.parent_id is UNSET:
            entry = msgspec.structs.replace(entry, parent_id=self._tip)
        if not entry.side:
            self._tip = entry.id
        if entry.message is not None and entry.message.role not in _HEARD:
            self.kept_only[entry.message.role] += 1
        return entry

    def _known_as(self, entry: Entry) -> Known:
        sent = self._digest_by_id.get(entry.id)
        if sent is not None:
            return "same" if sent == _digest(entry) else "other"
        with self._desk.engine.reading(self._key) as live:
            return known_as(live.session, entry)


def _digest(entry: Entry) -> bytes:
    content = msgspec.structs.replace(entry, parent_id=None, timestamp="", origin=None)
    return hashlib.sha256(encode(content)).digest()
