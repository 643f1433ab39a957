"""Observer, reflector and dropper: one bounded run each, from values to values (S15).

What a model says is sanitised, never trusted: ids outside the input are left out, content is one
line, and what cannot be stored is counted and named to the model once. Items are as the model
wrote them, their ids taken from that; whoever stores them redacts them first (``redacted``).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_id, reflection_id
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import RELEVANCES, Observation, Reflection, Relevance
from ombus_schemas.settings import WorkerLimits

from ombus_streams.memory.errors import SizeExceeded
from ombus_streams.memory.redact import redact, redact_text
from ombus_streams.memory.tokens import item_tokens, text_tokens
from ombus_streams.runtime.errors import LimitExceeded, Refused
from ombus_streams.runtime.limits import measure
from ombus_streams.runtime.model_loop import LoopRequest, LoopResult, run_loop
from ombus_streams.runtime.prompts import (
    Prompt,
    dropper_text,
    is_control_text,
    observer_text,
    reflector_text,
    system_text,
    tool_of,
)
from ombus_streams.runtime.provider import Material, ModelProvider, Usage, WorkerName

Rejection = Literal[
    "content_missing",  # no text, or nothing but blanks
    "control_text",  # an echo of what steers the model, see ``is_control_text``
    "no_known_id",  # every source or support is outside the input
    "unknown_id",  # one id outside the input, of an item that is kept
    "relevance_unreadable",  # a word in a list: valid to read, not to store
]

Item = TypeVar("Item")
Stored = TypeVar("Stored", Observation, Reflection)

_BLANKS: Final = re.compile(
    "[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+"
)
"""JavaScript's white space; Python's ``\\s`` is another set (S25)."""
_MAX_NAMED_IDS: Final = 8
"""Rejected ids named in one tool result; the rest is a count."""
_MAX_NAMED_CHARS: Final = 64


class WorkerResult(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """What a successful run collected, and how it went."""

    items: tuple[Item, ...] = ()
    n_turns: int = 0
    """Zero: the provider was not asked."""
    n_calls: int = 0
    rejections: Mapping[Rejection, int] = {}
    usage: Usage | None = None
    """``None``: the provider reports none."""

    @property
    def n_rejected(self) -> int:
        """Items and single ids that the model named and that were not stored."""
        return sum(self.rejections.values())


async def run_observer(
    provider: ModelProvider,
    entries: Sequence[Entry],
    active: Sequence[Observation],
    now: str,
    session_id: str,
    limits: WorkerLimits,
    secrets: Sequence[str] = (),
    instruction: str | None = None,
    prompt: Prompt = "fenced",
    report_rejections: bool = True,
    options: JsonObject | None = None,
) -> WorkerResult[Observation]:
    """Return what the provider observes in ``entries``, in the order it was recorded.

    ``active`` is shown so that nothing is observed twice; ``now`` (ISO, ms) stamps the items. The
    same call twice gives two equal items: the fold keeps one.

    Raises:
        WorkerFailed: the run failed and nothing of it is kept.
        Refused: this span will never be taken; halve it.
    """
    desk = _Desk("observer", session_id, limits, secrets, instruction, prompt, report_rejections)
    known = frozenset(entry.id for entry in entries)
    items: list[Observation] = []

    def record(arguments: JsonObject) -> None:
        content = desk.content(arguments)
        sources = desk.known_ids(arguments, "sourceEntryIds", known)
        relevance = desk.relevance(arguments)
        if content is None or sources is None or relevance is None:
            return
        items.append(
            Observation(
                id=observation_id(content, sources),
                content=content,
                timestamp=now,
                relevance=relevance,
                source_entry_ids=sources,
                token_count=text_tokens(content),
            )
        )

    done = await desk.run(
        provider,
        partial(observer_text, entries, active, prompt, desk.secrets, limits.max_message_bytes),
        Material(sources=tuple(entries), observations=tuple(active)),
        record,
        options,
    )
    return _result(items, desk, done)


async def run_reflector(
    provider: ModelProvider,
    observations: Sequence[Observation],
    session_id: str,
    limits: WorkerLimits,
    secrets: Sequence[str] = (),
    instruction: str | None = None,
    prompt: Prompt = "fenced",
    report_rejections: bool = True,
    options: JsonObject | None = None,
) -> WorkerResult[Reflection]:
    """Return the reflections the provider draws from ``observations``; raises like an observer."""
    desk = _Desk("reflector", session_id, limits, secrets, instruction, prompt, report_rejections)
    known = frozenset(item.id for item in observations)
    items: list[Reflection] = []

    def record(arguments: JsonObject) -> None:
        content = desk.content(arguments)
        supports = desk.known_ids(arguments, "supportingObservationIds", known)
        if content is None or supports is None:
            return
        items.append(
            Reflection(
                id=reflection_id(content, supports),
                content=content,
                supporting_observation_ids=supports,
                token_count=text_tokens(content),
            )
        )

    done = await desk.run(
        provider,
        partial(reflector_text, observations, prompt, limits.max_message_bytes),
        Material(observations=tuple(observations)),
        record,
        options,
    )
    return _result(items, desk, done)


async def run_dropper(
    provider: ModelProvider,
    observations: Sequence[Observation],
    target_tokens: int | float,
    session_id: str,
    limits: WorkerLimits,
    reflections: Sequence[Reflection] = (),
    secrets: Sequence[str] = (),
    instruction: str | None = None,
    prompt: Prompt = "fenced",
    report_rejections: bool = True,
    options: JsonObject | None = None,
) -> WorkerResult[str]:
    """Return the ids the provider would forget, each once, in the order they were named.

    A pool that fits its target is left alone and the provider is not asked. The target is told,
    not enforced. ``reflections`` are the visible ones: finished work may go only if one of them
    carries it. Raises like an observer.
    """
    if item_tokens(observations) <= target_tokens:
        return WorkerResult()
    desk = _Desk("dropper", session_id, limits, secrets, instruction, prompt, report_rejections)
    known = frozenset(item.id for item in observations)
    gone: dict[str, None] = {}

    def record(arguments: JsonObject) -> None:
        gone.update(dict.fromkeys(desk.known_ids(arguments, "observationIds", known) or ()))

    done = await desk.run(
        provider,
        partial(dropper_text, observations, reflections, prompt, limits.max_message_bytes),
        Material(
            observations=tuple(observations),
            reflections=tuple(reflections),
            target_tokens=target_tokens,
        ),
        record,
        options,
    )
    return _result(list(gone), desk, done)


def redacted(items: Sequence[Stored], secrets: Sequence[str]) -> tuple[Stored, ...]:
    """Return ``items`` as they may be stored: their content without known secrets, ids kept."""
    return tuple(replace(item, content=redact_text(item.content, secrets)) for item in items)


class _Desk:
    """One run in progress: judges what the model hands in, and counts what it turns away."""

    def __init__(
        self,
        worker: WorkerName,
        session_id: str,
        limits: WorkerLimits,
        secrets: Sequence[str],
        instruction: str | None,
        prompt: Prompt,
        report_rejections: bool,
    ) -> None:
        self.secrets = tuple(secrets)
        self.rejections: Counter[Rejection] = Counter()
        self._worker, self._session_id, self._limits = worker, session_id, limits
        self._instruction, self._prompt = instruction, prompt
        self._report_rejections = report_rejections
        self._system = ""
        self._turned_away: dict[Rejection, list[str]] = {}

    async def run(
        self,
        provider: ModelProvider,
        prompt_text: Callable[[], str],
        material: Material,
        record: Callable[[JsonObject], None],
        options: JsonObject | None,
    ) -> LoopResult:
        try:
            text = prompt_text()
        except (LimitExceeded, SizeExceeded) as error:
            raise Refused(str(error), "too_large") from error
        tool = tool_of(self._worker, self._prompt)
        self._system = system_text(
            self._worker, self._prompt, self._instruction, material.target_tokens
        )

        def handle(arguments: JsonValue) -> JsonValue:
            self._turned_away = {}
            record(arguments if isinstance(arguments, dict) else {})
            return self._answer()

        request = LoopRequest(
            worker=self._worker,
            system=self._system,
            prompt=text,
            tools=(tool,),
            options={"sessionId": f"om:{self._session_id}", **(options or {})},
            material=material,
            limits=self._limits,
            secrets=self.secrets,
        )
        return await run_loop(provider, request, {tool.name: handle})

    def content(self, arguments: JsonObject) -> str | None:
        """Return the content as one trimmed line, or ``None`` after turning it away."""
        value = arguments.get("content")
        content = _BLANKS.sub(" ", value).strip(" ") if isinstance(value, str) else ""
        if not content:
            self._reject("content_missing")
            return None
        if self._prompt == "fenced" and is_control_text(content, self._system):
            self._reject("control_text")
            return None
        return content

    def known_ids(
        self, arguments: JsonObject, key: str, known: Collection[str]
    ) -> tuple[str, ...] | None:
        """Return the ids that belong to the input, order and repeats kept; ``None`` if none do."""
        value = arguments.get(key)
        named = value if isinstance(value, list) else []
        kept = tuple(item for item in named if isinstance(item, str) and item in known)
        unknown = [item if isinstance(item, str) else "" for item in named if item not in kept]
        if not kept:
            self._reject("no_known_id", *unknown)
            return None
        for item in unknown:
            self._reject("unknown_id", item)
        return kept

    def relevance(self, arguments: JsonObject) -> Relevance | None:
        """Return the relevance; anything that does not read as one of the words is ``medium``."""
        value = arguments.get("relevance")
        if value in RELEVANCES:
            return value
        # JavaScript prints a list of one as its item, so the reference takes such a list for the
        # word, and then loses the item in validation (S15).
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if value in RELEVANCES:
            self._reject("relevance_unreadable")
            return None
        return "medium"

    def _reject(self, reason: Rejection, *ids: str) -> None:
        self.rejections[reason] += 1
        self._turned_away.setdefault(reason, []).extend(ids)

    def _answer(self) -> JsonValue:
        if not self._turned_away or not self._report_rejections:
            return {"ok": True}
        named: JsonObject = {
            reason: [item[:_MAX_NAMED_CHARS] for item in ids[:_MAX_NAMED_IDS]]
            for reason, ids in self._turned_away.items()
        }
        value: JsonObject = {"ok": True, "rejected": named}
        return value if self._fits(value) else {"ok": True}

    def _fits(self, value: JsonObject) -> bool:
        shown = redact({"result": value}, self.secrets)
        try:
            measure(shown, self._limits.max_result_bytes, "tool result")
            measure({"result": value}, self._limits.max_result_bytes, "tool result")
        except LimitExceeded:
            return False
        return True


def _result(items: Sequence[Item], desk: _Desk, done: LoopResult) -> WorkerResult[Item]:
    return WorkerResult(
        items=tuple(items),
        n_turns=done.n_turns,
        n_calls=done.n_calls,
        rejections=dict(desk.rejections),
        usage=done.usage,
    )
