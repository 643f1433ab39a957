"""A model as the workers see it: one request, one tool-only turn of events.

What a provider yields is a claim, never a fact: the loop (``model_loop``) bounds it and the workers
(``workers``) judge it. Source: S15, design.md section 5.
"""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import Observation, Reflection

WorkerName = Literal["observer", "reflector", "dropper"]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool the model may call. Arguments are sanitised by the worker, not by the schema (S15)."""

    name: str
    description: str
    parameters: JsonObject


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What the prompt shows, as values: a model-free provider reads this and parses no text.

    It is not redacted; what a run returns is redacted by whoever stores it, like a model's answer.
    """

    sources: tuple[Entry, ...] = ()
    observations: tuple[Observation, ...] = ()
    """The observer's known active ones, the reflector's and the dropper's input."""
    reflections: tuple[Reflection, ...] = ()
    """Visible ones, for the dropper: a completion may go only if one of them carries it."""
    target_tokens: int | float | None = None


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One turn to be answered. ``messages`` is the whole transcript so far, already redacted."""

    worker: WorkerName
    messages: tuple[JsonObject, ...]
    tools: tuple[Tool, ...]
    options: JsonObject
    """Provider options; ``sessionId`` is ``om:<session>`` unless the host set another."""
    max_calls: int
    """Calls this turn may make; one more fails the run."""
    max_run_calls: int
    """Calls all turns of the run may make together."""
    n_calls: int
    """Calls the run has already made."""
    material: Material


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """The model wants a tool run. Absent arguments are fatal, odd ones are sanitised."""

    id: str
    name: str
    arguments: JsonValue | UnsetType = UNSET


class Text(msgspec.Struct, frozen=True):
    """Prose of the model: a tool-only turn has no use for it, so it is ignored."""

    text: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens the provider billed for this turn."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class TurnFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The provider could not finish the turn; nothing of the run is kept."""

    message: str
    code: str | int | None = None
    """As the provider names it; with the message it decides whether the failure is transient."""
    retry_after_ms: int | None = None
    is_refusal: bool = False
    """The provider will never accept this input: the same request must not be sent again."""


TurnEvent = ToolCall | Text | Usage | TurnFailed


class ModelProvider(Protocol):
    """A model, or something that answers like one. Stateless between turns."""

    @property
    def name(self) -> str:
        """Who answers, as recorded in ``producedBy.provider``."""
        ...

    @property
    def model(self) -> str:
        """Which model answers, as recorded in ``producedBy.model``."""
        ...

    def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events of one turn; closed early when the run fails.

        May raise anything: the run then fails with it.
        """
        ...
