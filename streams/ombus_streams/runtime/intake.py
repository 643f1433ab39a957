"""Where a model's calls are judged: what is taken in, and what is turned away and counted.

A model may say anything. Ids outside the input are left out, content becomes one line, echoes of
control text are refused, and what was turned away is named in the call's result, once.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import RELEVANCES, Relevance
from ombus_schemas.settings import WorkerLimits

from ombus_streams.memory.errors import SizeExceeded
from ombus_streams.memory.redact import redact
from ombus_streams.runtime.errors import LimitExceeded, Refused
from ombus_streams.runtime.limits import measure
from ombus_streams.runtime.model_loop import LoopRequest, LoopResult, run_loop
from ombus_streams.runtime.prompts import Prompt, is_control_text, system_text, tool_of
from ombus_streams.runtime.provider import Material, ModelProvider, WorkerName

Rejection = Literal[
    "content_missing",  # no text, or nothing but blanks
    "control_text",  # an echo of what steers the model, see ``is_control_text``
    "no_known_id",  # every source or support is outside the input
    "unknown_id",  # one id outside the input, of an item that is kept
    "relevance_unreadable",  # a word in a list: valid to read, not to store
]

_BLANKS: Final = re.compile(
    "[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+"
)
"""JavaScript's white space; Python's ``\\s`` is another set (S25)."""
_BREAKS: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
"""Controls, of which some end a line for whoever reads it: an item is one line for everybody."""
_HIDDEN: Final = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\U000e0000-\U000e007f]")
"""Marks that hide or turn text around; joiners that scripts and emoji need are none of them."""
_MAX_NAMED_IDS: Final = 8
"""Rejected ids named in one tool result; the rest is a count."""
_MAX_NAMED_CHARS: Final = 64


class Intake:
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
        content = value if isinstance(value, str) else ""
        if self._prompt == "fenced":
            content = _HIDDEN.sub("", _BREAKS.sub(" ", content))
        content = _BLANKS.sub(" ", content).strip(" ")
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
