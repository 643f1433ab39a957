"""Conversations with questions in the LoCoMo format: read from a file, seen as session entries.

A file is a JSON list of ``{sample_id, conversation: {session_1: [{speaker, dia_id, text}], ...},
qa: [{question, answer, evidence: [dia_id], category}]}``. What else stands in it is not read.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.entries import SCHEMA_VERSION, Entry, Message
from ombus_schemas.jsontext import JsonObject, JsonValue

_SESSION: Final = re.compile(r"session_(\d+)")
_DIA_ID: Final = re.compile(r"D\d+:\d+")
_UNFIT: Final = re.compile(r"[^!-~]+")


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one speaker says at once."""

    speaker: str
    dia_id: str
    text: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question and the turns that answer it; no memory ever reads it."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    category: int


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Two people, their sessions in order, and what is asked afterwards."""

    sample_id: str
    speakers: tuple[str, ...]
    """In the order in which they first speak, or as the file names them."""
    sessions: dict[str, list[Turn]]
    dates: dict[str, str] = {}
    questions: tuple[Question, ...] = ()

    @property
    def turns(self) -> list[Turn]:
        """Every turn in the order it was said."""
        return [turn for turns in self.sessions.values() for turn in turns]


class BadConversations(ValueError):
    """The file is no list of conversations in this format."""

    def __init__(self, path: Path, fact: str) -> None:
        super().__init__(path, fact)
        self.path, self.fact = path, fact

    def __str__(self) -> str:
        return (
            f"{self.path} {self.fact}: expected a JSON list of "
            "{sample_id, conversation: {session_1: [{speaker, dia_id, text}]}, qa: [...]}"
        )


def read_conversations(path: Path) -> list[Conversation]:
    """Return the conversations of a file. Raises ``BadConversations``, ``OSError``."""
    try:
        found: JsonValue = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise BadConversations(path, f"is no JSON ({error})") from error
    if not isinstance(found, list) or not found:
        raise BadConversations(path, "holds no list of conversations")
    return [_conversation(path, number, value) for number, value in enumerate(found)]


def written(conversations: list[Conversation]) -> bytes:
    """Return the conversations as such a file."""
    samples: list[JsonObject] = []
    for one in conversations:
        held: JsonObject = dict(zip(("speaker_a", "speaker_b"), one.speakers, strict=False))
        for name, turns in one.sessions.items():
            if f"{name}_date_time" in one.dates:
                held[f"{name}_date_time"] = one.dates[f"{name}_date_time"]
            held[name] = msgspec.to_builtins(turns)
        samples.append(
            {
                "sample_id": one.sample_id,
                "conversation": held,
                "qa": msgspec.to_builtins(one.questions),
            }
        )
    return msgspec.json.format(msgspec.json.encode(samples), indent=1)


def entries_of(one: Conversation, tenant_id: str, session_id: str) -> tuple[list[Entry], list[str]]:
    """Return the turns as chained entries, and their ids turn by turn.

    The first speaker is the user, every other one the assistant. An id is the turn's ``dia_id``,
    changed only where two turns have the same one.
    """
    user = next(iter(turn.speaker for turn in one.turns), "")
    entries: list[Entry] = []
    taken: set[str] = set()
    for number, turn in enumerate(one.turns):
        entry_id = _UNFIT.sub("_", turn.dia_id)[:160] or f"turn:{number}"
        while entry_id in taken or entry_id.startswith("om:"):
            entry_id = f"t{number}:{entry_id}"
        taken.add(entry_id)
        role = "user" if turn.speaker == user else "assistant"
        entries.append(
            Entry(
                id=entry_id,
                session_id=session_id,
                tenant_id=tenant_id,
                parent_id=entries[-1].id if entries else None,
                timestamp="2023-01-01T00:00:00.000Z",
                kind="message",
                schema_version=SCHEMA_VERSION,
                message=Message(role=role, content=[{"type": "text", "text": turn.text}]),
                origin="human" if role == "user" else "model",
            )
        )
    return entries, [entry.id for entry in entries]


def _conversation(path: Path, number: int, value: JsonValue) -> Conversation:
    said = value.get("conversation") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(said, dict):
        raise BadConversations(path, f"has no conversation in item {number}")
    names = [name for name in said if _SESSION.fullmatch(name) and isinstance(said[name], list)]
    names.sort(key=lambda name: int(name.partition("_")[2]))
    sessions = {name: _turns(said[name]) for name in names}
    if not any(sessions.values()):
        raise BadConversations(path, f"has no turn in item {number}")
    asked = value.get("qa")
    speakers = dict.fromkeys(turn.speaker for turns in sessions.values() for turn in turns)
    return Conversation(
        sample_id=_text(value.get("sample_id")) or str(number),
        speakers=tuple(speakers),
        sessions=sessions,
        dates={name: text for name, text in said.items() if isinstance(text, str)},
        questions=tuple(
            _question(item)
            for item in (asked if isinstance(asked, list) else [])
            if isinstance(item, dict)
        ),
    )


def _turns(value: JsonValue) -> list[Turn]:
    return [
        Turn(
            speaker=_text(item.get("speaker")),
            dia_id=_text(item.get("dia_id")),
            text=_text(item.get("text")),
        )
        for item in (value if isinstance(value, list) else [])
        if isinstance(item, dict)
    ]


def _question(item: Mapping[str, JsonValue]) -> Question:
    shown = item.get("evidence")
    listed = shown if isinstance(shown, list) else [shown]
    # Some items of the public set name two turns in one text ("D8:6; D9:17").
    evidence = [name for part in listed for name in _DIA_ID.findall(_text(part)) or [_text(part)]]
    category = item.get("category")
    return Question(
        question=_text(item.get("question")),
        answer=_text(item.get("answer")),
        evidence=tuple(dict.fromkeys(name for name in evidence if name)),
        category=category if isinstance(category, int) else 0,
    )


def _text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None or isinstance(value, bool) else str(value)
