"""One call to the gateway: tried again while that can help, its refusal as a typed error."""

import asyncio
import random
from collections.abc import Mapping
from typing import Final

import msgspec
from ombus_schemas.api import Problem

from ombus.client.errors import (
    BY_CODE,
    BadRequest,
    Behind,
    Busy,
    OmbusError,
    Refused,
    Retryable,
    Unavailable,
)
from ombus.client.transport import Reply, Transport

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 5.0
_AGAIN: Final = frozenset({408, 429, 502, 503, 504})
_WITH_RESULTS: Final = frozenset({409, 422})


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call is tried again before its error is raised."""

    seconds: float = 30.0


async def call(
    transport: Transport,
    method: str,
    path: str,
    query: Mapping[str, str],
    body: bytes | None,
    seconds: float,
) -> Reply:
    """Return the reply of 200, or one whose problem tells of each entry.

    Everything the client asks may be asked twice: reads change nothing, entries and requests have
    ids of their own.

    Raises:
        Retryable: still after ``seconds``. Refused: at once.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, FIRST_PAUSE_S
    while True:
        try:
            reply = await transport.request(method, path, query, body)
            if reply.status == 200 or (reply.status in _WITH_RESULTS and _problem(reply).results):
                return reply
            raise error_of(reply)
        except Retryable as error:
            wait = pause * random.uniform(0.5, 1.5)
            if isinstance(error, Busy):
                wait = max(wait, min(error.retry_after, MAX_PAUSE_S))
            if loop.time() + wait > deadline:
                raise
        await asyncio.sleep(wait)
        pause = min(2 * pause, MAX_PAUSE_S)


def error_of(reply: Reply) -> OmbusError:
    """Return the error that a reply is."""
    problem = _problem(reply)
    fact = f"{problem.title}{f': {problem.detail}' if problem.detail else ''}"
    if reply.status in _AGAIN:
        said = reply.headers.get("retry-after", "")
        after = float(said) if said.isdecimal() else 1.0
        if problem.code == "behind":
            return Behind(fact, after)
        return Busy(fact, after) if problem.code else Unavailable(fact, after)
    kind: type[Refused] = BY_CODE.get(problem.code, BadRequest)
    return kind(f"{fact} [{problem.code}]", problem.code, problem.request_id)


def results_of(reply: Reply) -> Problem:
    """Return the problem of a reply that tells of each entry."""
    return _problem(reply)


def _problem(reply: Reply) -> Problem:
    try:
        return msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        title = f"answered {reply.status}"
        return Problem(type="", title=title, status=reply.status, code="", request_id="")
