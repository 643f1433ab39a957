"""S21. Callbacks are named ``fn:<name>``; what each does is in its name."""

import asyncio
from collections.abc import Awaitable, Callable

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.compact_when import (
    CapUnknown,
    Measures,
    decide,
    trigger_of_options,
)

from tests.conformance.cases import Result, UnknownOp, number_of


def run(case: JsonObject) -> Result:
    options, given = case["options"], case["input"]
    if case["op"] != "should_compact" or not isinstance(options, dict):
        raise UnknownOp(case["op"])
    assert isinstance(given, dict)
    calls: dict[str, JsonValue] = {"estimate": 0, "cap": 0}
    errors: list[JsonValue] = []

    def counted(name: str, value: JsonValue) -> Callable[[], int | float]:
        def read() -> int | float:
            calls[name] = int(number_of(calls[name])) + 1
            if value is None:
                raise CapUnknown("no context window")
            return number_of(value)

        return read

    measures = Measures(
        int(number_of(given["entryCount"])),
        counted("estimate", given.get("estimatedInputTokens")),
        counted("cap", given.get("inputCapTokens")),
        str(given.get("sessionId")),
    )
    trigger = trigger_of_options(_with_callbacks(options))
    fired = asyncio.run(decide(trigger, measures, lambda error: errors.append(str(error))))
    return {"result": fired, "calls": calls, "errors": errors}


def _with_callbacks(options: JsonObject) -> dict[str, object]:
    given: dict[str, object] = dict(options)
    trigger = options.get("trigger")
    if isinstance(trigger, dict):
        given["trigger"] = {key: _callback(value) for key, value in trigger.items()}
    if "shouldCompact" in options:
        given["shouldCompact"] = _callback(options["shouldCompact"])
    return given


def _callback(value: JsonValue) -> object:
    if not isinstance(value, str) or not value.startswith("fn:"):
        return value
    return CALLBACKS[value.removeprefix("fn:")]


def _raises(message: str) -> Callable[[Measures], object]:
    def callback(measures: Measures) -> object:
        raise RuntimeError(message)

    return callback


def _later(answer: object) -> Callable[[Measures], Awaitable[object]]:
    async def callback(measures: Measures) -> object:
        return answer

    return callback


async def _rejects(measures: Measures) -> object:
    raise RuntimeError("boom")


CALLBACKS: dict[str, Callable[[Measures], object]] = {
    "true": lambda measures: True,
    "false": lambda measures: False,
    "undefined": lambda measures: None,
    "null": lambda measures: None,
    "truthy_1": lambda measures: 1,
    "truthy_string": lambda measures: "true",
    "promise_true": _later(True),
    "promise_false": _later(False),
    "promise_truthy_1": _later(1),
    "promise_reject": _rejects,
    "promise_rejects": _rejects,
    "rejects": _rejects,
    "throws": _raises("boom"),
    "reads_count_gt_3": lambda measures: measures.n_entries > 3,
    "reads_cap_or_count": lambda measures: (
        measures.cap_tokens() > 1_000_000 or measures.n_entries > 3
    ),
    "reads_ratio_09": lambda measures: measures.tokens() / measures.cap_tokens() >= 0.9,
    "reads_twice": lambda measures: measures.tokens() + measures.tokens() >= 0,
}
