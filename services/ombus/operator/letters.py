"""Dead letters: what could not be folded, and what was decided about each, as audited records.

Letters and decisions lie on one log. A letter's id is the position its record had on the entry log;
the same letter sent twice is one letter. A decision is a record of its own with who, when and what.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec
from ombus_schemas.headers import FAILURE_REASON
from ombus_schemas.jsontext import JsonObject
from ombus_streams.runtime.dead_letters import NULL_VALUE
from ombus_streams.runtime.ports import Draft, EntryLog, LogRecord

from ombus.operator.errors import Misaddressed

DECISION: Final = "ombus-dead-letter-decision"
"""Header of a record that decides about a letter; its value is JSON."""
_ERRORS: Final = "__streams.errors."
_PAGE: Final = 500

State = Literal["open", "retried", "discarded"]


class Decision(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who decided what about a letter, and when (append time, milliseconds)."""

    letter: str
    action: Literal["retried", "discarded"]
    by: str
    position: str | None = None
    """Where a retried record was appended."""
    at_ms: int = 0


class Letter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One dead letter."""

    id: str
    """``<partition>:<offset>`` of the record on its topic."""
    topic: str
    reason: str
    detail: str
    session: str
    """The record's key as text."""
    n_bytes: int
    at_ms: int
    state: State
    decisions: tuple[Decision, ...]
    record: LogRecord

    def as_json(self, *, with_value: bool = False) -> JsonObject:
        """Return the letter without its bytes, or with them as text (undecodable bytes escaped)."""
        shown: JsonObject = {
            "id": self.id,
            "topic": self.topic,
            "reason": self.reason,
            "detail": self.detail,
            "session": self.session,
            "bytes": self.n_bytes,
            "atMs": self.at_ms,
            "state": self.state,
            "decisions": msgspec.to_builtins(self.decisions),
        }
        if with_value:
            value = self.record.value or b""
            shown["value"] = value.decode("utf-8", "backslashreplace")
            shown["headers"] = {
                name: text.decode("utf-8", "backslashreplace") for name, text in self.record.headers
            }
        return shown


class NoLetter(Misaddressed):
    """No dead letter has this id."""

    code = "no_letter"

    def __init__(self, letter_id: str) -> None:
        super().__init__(f"no dead letter {letter_id}: `ombus dlq list --all` shows them")
        self.letter_id = letter_id


class Decided(Misaddressed):
    """The letter is not open any more."""

    code = "decided"

    def __init__(self, letter: Letter) -> None:
        super().__init__(
            f"dead letter {letter.id} is {letter.state} already: `ombus dlq show {letter.id}` "
            "says by whom; --again does it once more"
        )


def letters(log: EntryLog) -> list[Letter]:
    """Return every dead letter with its decisions, in the order they came."""
    found: dict[str, LogRecord] = {}
    decisions: dict[str, list[Decision]] = {}
    for record in _records(log):
        headers = dict(record.headers)
        if DECISION in headers:
            decision = _decision(record)
            if decision is not None:
                decisions.setdefault(decision.letter, []).append(decision)
        elif FAILURE_REASON in headers:
            found.setdefault(_id(headers), record)
    return [_letter(each, record, decisions.get(each, [])) for each, record in found.items()]


def letter(log: EntryLog, letter_id: str) -> Letter:
    """Return one letter.

    Raises:
        NoLetter: there is none with this id.
    """
    for each in letters(log):
        if each.id == letter_id:
            return each
    raise NoLetter(letter_id)


def retry(entries: EntryLog, log: EntryLog, chosen: Letter, by: str, *, again: bool) -> str:
    """Append the original record once more, note it, and return its position.

    It is folded if whatever was wrong is mended, and comes back as a new letter if not.

    Raises:
        Decided: it was retried or discarded before, and ``again`` is not set.
    """
    _check(chosen, again)
    headers = tuple(
        (name, value)
        for name, value in chosen.record.headers
        if not name.startswith(_ERRORS) and name not in (FAILURE_REASON, NULL_VALUE)
    )
    draft = Draft(key=chosen.record.key or b"", value=chosen.record.value or b"", headers=headers)
    (position,) = entries.append([draft])
    _note(
        log,
        chosen,
        Decision(letter=chosen.id, action="retried", by=by, position=str(position)),
    )
    return str(position)


def discard(log: EntryLog, chosen: Letter, by: str, *, again: bool) -> None:
    """Note that nobody needs the letter any more; its bytes stay until the topic's retention.

    Raises:
        Decided: as ``retry``.
    """
    _check(chosen, again)
    _note(log, chosen, Decision(letter=chosen.id, action="discarded", by=by))


def _check(chosen: Letter, again: bool) -> None:
    if chosen.state != "open" and not again:
        raise Decided(chosen)


def _note(log: EntryLog, chosen: Letter, decision: Decision) -> None:
    value = msgspec.json.encode(decision)
    log.append([Draft(key=chosen.record.key or b"", value=value, headers=((DECISION, b"1"),))])


def _records(log: EntryLog) -> Iterator[LogRecord]:
    for partition in range(log.partitions):
        offset = log.start(partition)
        while page := log.read(partition, offset, _PAGE):
            yield from page
            offset = page[-1].offset + 1


def _id(headers: Mapping[str, bytes]) -> str:
    partition = headers.get(f"{_ERRORS}partition", b"?").decode("ascii", "replace")
    offset = headers.get(f"{_ERRORS}offset", b"?").decode("ascii", "replace")
    return f"{partition}:{offset}"


def _decision(record: LogRecord) -> Decision | None:
    try:
        said = msgspec.json.decode(record.value or b"", type=Decision)
    except msgspec.DecodeError:
        return None
    return msgspec.structs.replace(said, at_ms=record.at_ms)


def _letter(letter_id: str, record: LogRecord, decisions: list[Decision]) -> Letter:
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
    return Letter(
        id=letter_id,
        topic=headers.get(f"{_ERRORS}topic", ""),
        reason=headers[FAILURE_REASON],
        detail=headers.get(f"{_ERRORS}message", ""),
        session=(record.key or b"").decode("utf-8", "backslashreplace"),
        n_bytes=len(record.value or b""),
        at_ms=record.at_ms,
        state=decisions[-1].action if decisions else "open",
        decisions=tuple(decisions),
        record=record,
    )
