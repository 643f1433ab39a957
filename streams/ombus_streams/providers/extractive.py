"""A provider without a model: the same tool calls, made of the words that are there.

Deterministic, offline, milliseconds per hundred entries. It reads the request's material, never
its prompt, and answers the same bounded loop a model does; so everything behind the loop is
exercised by it, and the default needs neither key nor network.

A conversation of two people is kept in spans of what was said (``dialogue``). What it observes of
an agent's work: the user's words first (rules, corrections, decisions, requests), then outcomes
of tools in their final state, then conclusions of the assistant; each a published template
(``lines.TEMPLATES``) with its exact sources. Harness text and a tool's prose are never speech.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import Relevance

from ombus_streams.memory.coverage import NOT_SOURCES
from ombus_streams.memory.tokens import branch_tokens, item_tokens, text_tokens
from ombus_streams.providers.dialogue import dialogue_lines, is_dialogue
from ombus_streams.providers.lines import (
    RANK,
    STANDING,
    Kind,
    Line,
    Seen,
    body_of,
    words,
    write,
)
from ombus_streams.providers.names import name_lines
from ombus_streams.providers.outcomes import Outcomes
from ombus_streams.providers.speech import (
    is_talk,
    kind_of_assistant_passage,
    kind_of_user_passage,
    passages,
    pasted,
    spoken,
)
from ombus_streams.providers.telling import Telling, texts_of
from ombus_streams.providers.topics import droppable, reflections
from ombus_streams.providers.tuning import DEFAULT, Tuning
from ombus_streams.runtime.provider import Material, ModelRequest, ToolCall, TurnEvent

SHARE: Final = 0.2
"""What all observations of a run may weigh, as a part of their sources."""
MIN_BUDGET_TOKENS: Final = 48
"""A few lines are always affordable: a short session has its rule too."""
REPLACEABLE: Final[frozenset[Kind]] = frozenset({"request", "decision", "statement", "rule"})
"""What the user may take back in other words."""
MAX_USER_PASSAGES: Final = 6
"""Of one message: the first, and the weightiest of the rest."""
MAX_LAST_PASSAGES: Final = 4
"""Of the assistant's last message before the user speaks again: there it concludes."""
MAX_PASSING_PASSAGES: Final = 2
MAX_IDS_PER_CALL: Final = 500
MAX_HELD: Final = 64
"""Runs whose calls are kept for their next turn; one that was given up is forgotten at last."""


class Extractive:
    """The model-free provider; one object serves any number of runs."""

    name: Final = "extractive"
    model: Final = "extractive/2"

    def __init__(
        self, share: float = SHARE, reflect_over_tokens: int = 0, tuning: Tuning = DEFAULT
    ) -> None:
        """``share``: of the sources' tokens. ``reflect_over_tokens``: a smaller pool is left alone,
        nothing is gained by shortening what fits."""
        self._share, self._reflect_over_tokens = share, reflect_over_tokens
        self._tuning = tuning
        # One thread for all runs: they end in the order they began in, as the loop would have it.
        self._thread = ThreadPoolExecutor(1, "ombus-extractive")
        # The turns of a run carry one material: its calls are worked out once.
        self._held: dict[int, tuple[Material, list[JsonObject]]] = {}

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        """Yield the next calls of the run, as many as the turn may make; none ends it.

        They are worked out beside the loop, which folds meanwhile.
        """
        material, start = request.material, request.n_calls
        held = self._held.get(id(material))
        if held is None:
            loop = asyncio.get_running_loop()
            held = material, await loop.run_in_executor(self._thread, self._calls, request)
            self._held[id(material)] = held
            if len(self._held) > MAX_HELD:
                del self._held[next(iter(self._held))]
        calls = held[1]
        if start >= len(calls):
            self._held.pop(id(material), None)
        for n, arguments in enumerate(calls[start : start + request.max_calls], start=start):
            yield ToolCall(id=f"x{n}", name=request.tools[0].name, arguments=arguments)

    def _calls(self, request: ModelRequest) -> list[JsonObject]:
        material, limit = request.material, request.max_run_calls
        match request.worker:
            case "observer":
                lines = observe(material, self._share, limit, self._tuning)
                return [_recorded(line) for line in lines]
            case "reflector":
                pool = material.observations
                fits = item_tokens(pool) <= self._reflect_over_tokens
                found = [] if fits else reflections(pool, limit)
                return [
                    {"content": content, "supportingObservationIds": list(ids)}
                    for content, ids in found
                ]
            case "dropper":
                target = material.target_tokens or 0
                gone = droppable(material.observations, material.reflections, target)
                return [
                    {"observationIds": list(gone[at : at + MAX_IDS_PER_CALL])}
                    for at in range(0, len(gone), MAX_IDS_PER_CALL)
                ]


def observe(
    material: Material, share: float, max_lines: int, tuning: Tuning = DEFAULT
) -> list[Line]:
    """Return the lines worth keeping of the sources, in their order, within their budget.

    The weightiest are chosen first; what is nearly said by a chosen or an active line is left out.
    """
    sources = material.sources
    budget = max(MIN_BUDGET_TOKENS, share * branch_tokens(sources))
    if is_dialogue(sources):
        return dialogue_lines(sources, material.observations, budget, max_lines, tuning)
    least, most = tuning.names_least * budget, tuning.names_most * budget
    seen = Seen((item.content for item in material.observations), tuning.alike)
    chosen: list[Line] = []
    offered = sorted(candidates(sources), key=lambda line: line.place)
    offered = list(_standing(offered, tuning.corrected))
    order = _weight if tuning.relevance_first else _tells
    for line in sorted(offered, key=order, reverse=True):
        cost = text_tokens(line.content)
        if len(chosen) == max_lines:
            break
        # What the user requires may take the room of the names, nothing else does.
        room = budget if line.relevance == "critical" else budget - least
        if cost > room or seen.has(line.content):
            continue
        seen.add(line.content)
        chosen.append(line)
        budget -= cost
    kept = set(map(id, chosen))
    lines = [line for line in offered if id(line) in kept]
    named = name_lines(
        sources,
        [*(item.content for item in material.observations), *(line.content for line in lines)],
        min(budget, most),
        max_lines - len(lines),
    )
    return sorted([*lines, *named], key=lambda line: line.place)


def candidates(sources: Sequence[Entry]) -> list[Line]:
    """Return every line the sources offer."""
    outcomes = Outcomes()
    lines: list[Line] = []
    last = _last_words(sources)
    rarity = Telling(sources)
    for place, entry in enumerate(sources):
        if entry.message is None or entry.origin in NOT_SOURCES:
            continue
        texts: list[str] = []
        for block in entry.message.content:
            match block.get("type"):
                case "text":
                    text = block.get("text")
                    texts += [text] if isinstance(text, str) else []
                case "tool_call":
                    outcomes.called(entry.id, block)
                case "tool_result":
                    outcomes.answered(entry.id, place, block)
        speaker = _speaker(entry)
        for text in texts:
            if speaker == "user":
                lines += _of_user(entry.id, place, text, rarity)
            elif speaker == "assistant":
                lines += _of_assistant(entry.id, place, text, place in last, rarity)
            elif speaker == "elsewhere":
                lines += _copied(entry.id, place, text, rarity)
    return lines + outcomes.lines()


def _standing(lines: Sequence[Line], least: float) -> Iterator[Line]:
    """Yield the lines but for those wishes of the user that a later correction replaces."""
    corrections = [line for line in lines if line.kind == "correction"]
    for line in lines:
        said = frozenset(words(body_of(line.content))) if line.kind in REPLACEABLE else frozenset()
        if not said or not any(
            later.place > line.place
            and len(said & frozenset(words(body_of(later.content)))) >= least * len(said)
            for later in corrections
        ):
            yield line


def _of_user(entry_id: str, place: int, text: str, rarity: Telling) -> Iterator[Line]:
    found: list[Line] = []
    said = spoken(text)
    for passage in passages(said):
        verdict = kind_of_user_passage(passage)
        if verdict is not None:
            kind, relevance = verdict
            found.append(_line(kind, relevance, passage, entry_id, place, rarity))
    failure = pasted(said)
    if failure:
        found.append(_line("paste", "medium", failure, entry_id, place, rarity))
    yield from found[:1]
    rest = sorted(found[1:], key=_weight, reverse=True)
    yield from rest[: MAX_USER_PASSAGES - 1]


def _of_assistant(
    entry_id: str, place: int, text: str, is_last: bool, rarity: Telling
) -> list[Line]:
    found: list[Line] = []
    for passage in passages(spoken(text), is_talk):
        verdict = kind_of_assistant_passage(passage, is_last)
        if verdict is not None:
            kind, relevance = verdict
            found.append(_line(kind, relevance, passage, entry_id, place, rarity))
    found.sort(key=_weight, reverse=True)
    return found[: MAX_LAST_PASSAGES if is_last else MAX_PASSING_PASSAGES]


def _copied(entry_id: str, place: int, text: str, rarity: Telling) -> list[Line]:
    found = [
        _line("copied", "medium", passage, entry_id, place, rarity)
        for passage in passages(spoken(text))
    ]
    return sorted(found, key=_weight, reverse=True)[:MAX_LAST_PASSAGES]


def _line(
    kind: Kind, relevance: Relevance, text: str, entry_id: str, place: int, rarity: Telling
) -> Line:
    return Line(
        kind=kind,
        content=write(kind, text),
        source_ids=(entry_id,),
        relevance=relevance,
        place=place,
        score=rarity.score(text),
    )


def _weight(line: Line) -> tuple[int, bool, float, int]:
    return RANK[line.relevance], line.kind in STANDING, line.score, line.place


def _tells(line: Line) -> tuple[int, bool, float, int]:
    return 0, False, line.score, line.place


def _recorded(line: Line) -> JsonObject:
    return {
        "content": line.content,
        "sourceEntryIds": list(line.source_ids),
        "relevance": line.relevance,
    }


def _speaker(entry: Entry) -> str:
    """Return whose words the texts of ``entry`` are; the envelope knows better than the role."""
    role = entry.message.role if entry.message is not None else ""
    match entry.origin:
        case "other_session":
            return "elsewhere"
        case "tool":
            return "tool"
        case "model":
            return "assistant"
        case "human":
            return "user" if role == "user" else "assistant"
        case _:
            return role


def _last_words(sources: Sequence[Entry]) -> frozenset[int]:
    """Return the places of the assistant's last text before each turn of the user, and the end."""
    found: set[int] = set()
    latest: int | None = None
    for place, entry in enumerate(sources):
        texts = any(True for _ in texts_of(entry))
        if texts and _speaker(entry) == "assistant":
            latest = place
        elif texts and _speaker(entry) == "user" and latest is not None:
            found.add(latest)
            latest = None
    if latest is not None:
        found.add(latest)
    return frozenset(found)
