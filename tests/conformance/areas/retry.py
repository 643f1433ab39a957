"""S23.1: retry of a provider turn. Without jitter in the options, chance is held at the middle."""

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.retry import NO_JITTER, Failure, RetryPolicy, retry_delay_ms

from tests.conformance.cases import Result, UnknownOp


def run(case: JsonObject) -> Result:
    options, context = case["options"], case["context"]
    if case["op"] != "retry" or not isinstance(options, dict) or not isinstance(context, dict):
        raise UnknownOp(case["op"])
    signal, codes = context.get("signal"), options.get("transientCodes")
    policy = RetryPolicy(
        max_attempts=_number(options.get("maxAttempts"), 3),
        base_ms=_number(options.get("baseDelayMs", options.get("baseMs")), 100),
        max_ms=_number(options.get("maxDelayMs", options.get("maxMs")), 1_000),
        jitter=_number(options.get("jitter"), 0.25),
        transient_codes=frozenset(
            code
            for code in (codes if isinstance(codes, list) else ())
            if isinstance(code, str | int)
        ),
    )
    delay = retry_delay_ms(
        _failure(context.get("error")),
        _number(context.get("attempt"), 1),
        policy,
        _number(options.get("randomValue"), NO_JITTER),
        isinstance(signal, dict) and signal.get("aborted") is True,
    )
    return {"retry": False} if delay is None else {"retry": True, "delayMs": delay}


def _failure(error: JsonValue) -> Failure:
    if not isinstance(error, dict):
        return Failure(message=error if isinstance(error, str) else "")
    message, name, code = error.get("message"), error.get("name"), error.get("code")
    hint = error.get("retryAfterMs")
    return Failure(
        message=message if isinstance(message, str) else "",
        name=name if isinstance(name, str) else "",
        code=code if isinstance(code, str | int | float) else None,
        retry_after_ms=hint
        if isinstance(hint, int | float) and not isinstance(hint, bool)
        else None,
    )


def _number(value: JsonValue, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default
