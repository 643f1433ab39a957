"""The one retry layer: a turn that has said nothing is asked again (S23.1).

A longer wait than the policy's belongs to the scheduler, which asks for the whole run again; the
SDKs below never retry.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from ombus_streams.memory.retry import Failure, RetryPolicy, is_transient, retry_delay_ms
from ombus_streams.runtime.breaker import Breaker
from ombus_streams.runtime.provider import (
    ModelProvider,
    ModelRequest,
    TurnEvent,
    TurnFailed,
    Usage,
)

NowMs = Callable[[], int]
Sleep = Callable[[float], Awaitable[None]]


class Retrying:
    """A provider that is asked again, and whose breaker learns how it answers."""

    def __init__(
        self,
        provider: ModelProvider,
        breaker: Breaker,
        now_ms: NowMs,
        *,
        policy: RetryPolicy,
        random: Callable[[], float],
        sleep: Sleep,
    ) -> None:
        self.name, self.model = provider.name, provider.model
        self._provider, self._breaker, self._now_ms = provider, breaker, now_ms
        self._policy, self._random, self._sleep = policy, random, sleep

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        """Yield the events of the first try that says something; else how the last one failed."""
        attempt = 0
        while True:
            attempt += 1
            has_spoken = False
            failed: TurnFailed | Exception | None = None
            try:
                async with aclosing(self._provider.turn(request)) as events:
                    async for event in events:
                        if isinstance(event, TurnFailed):
                            failed = event
                            break
                        has_spoken = has_spoken or not isinstance(event, Usage)
                        yield event
            except Exception as error:  # whatever a provider raises is its failure, by policy (S15)
                failed = error
            if failed is None:
                self._breaker.succeeded()
                return
            failure = _failure_of(failed)
            if is_transient(failure, self._policy):
                hint = failure.retry_after_ms
                self._breaker.failed(self._now_ms(), None if hint is None else round(hint))
            else:
                self._breaker.succeeded()
            delay = None if has_spoken else self._delay_ms(failure, attempt)
            if delay is None:
                if isinstance(failed, Exception):
                    raise failed
                yield failed
                return
            await self._sleep(delay / 1_000)

    def _delay_ms(self, failure: Failure, attempt: int) -> int | None:
        hint = failure.retry_after_ms
        if hint is not None and hint > self._policy.max_ms:
            return None
        delay = retry_delay_ms(failure, attempt, self._policy, self._random())
        shut = self._breaker.wait_ms(self._now_ms())
        return None if delay is None or shut > self._policy.max_ms else max(delay, shut)


def _failure_of(failed: TurnFailed | Exception) -> Failure:
    if isinstance(failed, TurnFailed):
        if failed.is_refusal:
            return Failure()
        return Failure(
            message=failed.message, code=failed.code, retry_after_ms=failed.retry_after_ms
        )
    if isinstance(failed, TimeoutError | ConnectionError):
        return Failure(message=str(failed), code="ECONNRESET")
    code = getattr(failed, "code", None)
    return Failure(
        message=str(failed),
        name=type(failed).__name__,
        code=code if isinstance(code, str | int) else None,
    )
