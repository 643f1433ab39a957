"""Observer, reflector and dropper: one bounded run each, from values to values (S15).

What a model says is sanitised, never trusted: ids outside the input are left out, content is one
line, and what cannot be stored is counted and named to the model once. Items are as the model
wrote them, their ids taken from that; whoever stores them redacts them first (``redacted``).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_id, reflection_id
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import Observation, Reflection
from ombus_schemas.settings import WorkerLimits

from ombus_streams.memory.provenance import KEY, Quotable, origin_of, origin_of_item, said_in
from ombus_streams.memory.redact import redact_text
from ombus_streams.memory.tokens import item_tokens, text_tokens
from ombus_streams.runtime.intake import Intake, Rejection
from ombus_streams.runtime.model_loop import LoopResult
from ombus_streams.runtime.prompts import (
    Prompt,
    dropper_text,
    observer_text,
    reflector_text,
)
from ombus_streams.runtime.provider import Material, ModelProvider, Usage

Item = TypeVar("Item")
Stored = TypeVar("Stored", Observation, Reflection)


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
    intake = Intake("observer", session_id, limits, secrets, instruction, prompt, report_rejections)
    known = frozenset(entry.id for entry in entries)
    quotable = Quotable(
        [(entry.id, origin_of(entry), said_in(entry)) for entry in entries]
        if prompt == "fenced"
        else ()
    )
    items: list[Observation] = []

    def record(arguments: JsonObject) -> None:
        content = intake.content(arguments)
        sources = intake.known_ids(arguments, "sourceEntryIds", known)
        relevance = intake.relevance(arguments)
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
                extra=_origin(quotable, prompt, content, sources),
            )
        )

    done = await intake.run(
        provider,
        partial(observer_text, entries, active, prompt, intake.secrets, limits.max_message_bytes),
        Material(sources=tuple(entries), observations=tuple(active)),
        record,
        options,
    )
    return _result(items, intake, done)


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
    intake = Intake(
        "reflector", session_id, limits, secrets, instruction, prompt, report_rejections
    )
    known = frozenset(item.id for item in observations)
    quotable = Quotable(
        [(item.id, origin_of_item(item) or "model", item.content) for item in observations]
    )
    items: list[Reflection] = []

    def record(arguments: JsonObject) -> None:
        content = intake.content(arguments)
        supports = intake.known_ids(arguments, "supportingObservationIds", known)
        if content is None or supports is None:
            return
        items.append(
            Reflection(
                id=reflection_id(content, supports),
                content=content,
                supporting_observation_ids=supports,
                token_count=text_tokens(content),
                extra=_origin(quotable, prompt, content, supports),
            )
        )

    done = await intake.run(
        provider,
        partial(reflector_text, observations, prompt, limits.max_message_bytes),
        Material(observations=tuple(observations)),
        record,
        options,
    )
    return _result(items, intake, done)


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
    intake = Intake("dropper", session_id, limits, secrets, instruction, prompt, report_rejections)
    known = frozenset(item.id for item in observations)
    gone: dict[str, None] = {}

    def record(arguments: JsonObject) -> None:
        gone.update(dict.fromkeys(intake.known_ids(arguments, "observationIds", known) or ()))

    done = await intake.run(
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
    return _result(list(gone), intake, done)


def _origin(quotable: Quotable, prompt: Prompt, content: str, cited: Sequence[str]) -> JsonObject:
    """Return the field that says whose words an item rests on; the reference has none."""
    return {KEY: quotable.origin(content, cited)} if prompt == "fenced" else {}


def redacted(items: Sequence[Stored], secrets: Sequence[str]) -> tuple[Stored, ...]:
    """Return ``items`` as they may be stored: their content without known secrets, ids kept."""
    return tuple(replace(item, content=redact_text(item.content, secrets)) for item in items)


def _result(items: Sequence[Item], intake: Intake, done: LoopResult) -> WorkerResult[Item]:
    return WorkerResult(
        items=tuple(items),
        n_turns=done.n_turns,
        n_calls=done.n_calls,
        rejections=dict(intake.rejections),
        usage=done.usage,
    )
