"""Refusals as values: raised anywhere behind a route, answered as problem+json in one place.

A problem never names the session, the path or the token, so that what is absent and what is
forbidden are the same bytes but for the request id.
"""

from typing import Final

import msgspec
from ombus_schemas.api import EntryResult, Problem
from ombus_schemas.errors import ContractError
from ombus_schemas.problems import STATUS_BY_CODE
from ombus_streams.memory.errors import MemoryFault
from ombus_streams.runtime.errors import NotServed, RuntimeFault
from starlette.responses import Response

from ombus.operator.errors import BadPosition, NoLeaf, NoSession, PositionGone

UNTOUCHED: Final = "ombus-untouched"
"""Header, between gateways: nothing was done, so the same may be asked again."""
TYPE: Final = "urn:ombus:problem:"
MEDIA: Final = "application/problem+json"


class ApiError(Exception):
    """A refusal with a code of ``STATUS_BY_CODE``."""

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        retry_after: float | None = None,
        results: tuple[EntryResult, ...] = (),
        folded: str | None = None,
        end: str | None = None,
        is_untouched: bool = False,
    ) -> None:
        super().__init__(code, detail)
        self.code, self.detail, self.retry_after = code, detail, retry_after
        self.results, self.folded, self.end = results, folded, end
        self.is_untouched = is_untouched


def not_found() -> ApiError:
    """Return the one answer to whatever is absent or forbidden."""
    return ApiError("not_found")


def known(error: Exception) -> ApiError | None:
    """Return the refusal that an error of the layers below comes to, or ``None`` for a bug."""
    match error:
        case ApiError():
            return error
        case NoSession():
            return not_found()
        case NoLeaf():
            return ApiError("no_leaf", "name an entry of the session that a tail shows")
        case PositionGone():
            return ApiError("position_gone", "read without it for a position of this log")
        case BadPosition():
            return ApiError("bad_position", "give one that a read or an append returned")
        case NotServed(folded=None):
            return ApiError("moving", "nothing was done: ask again", retry_after=1)
        case NotServed():
            folded, end = str(error.folded), str(error.end)
            return ApiError("behind", str(error), retry_after=1, folded=folded, end=end)
        case RuntimeFault() | OSError():
            return ApiError("storage", type(error).__name__, retry_after=1)
        case ContractError():
            return ApiError("bad_request", str(error))
        case MemoryFault():
            return ApiError("internal", type(error).__name__)
        case _:
            return None


def respond(error: ApiError, request_id: str) -> Response:
    """Return the response to a refusal."""
    status, title = STATUS_BY_CODE[error.code]
    problem = Problem(
        type=TYPE + error.code,
        title=title,
        status=status,
        code=error.code,
        request_id=request_id,
        detail=error.detail,
        results=error.results,
        folded=error.folded,
        end=error.end,
    )
    headers = {"X-Request-Id": request_id}
    if error.retry_after is not None:
        headers["Retry-After"] = f"{max(1, round(error.retry_after))}"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.code in ("too_large", "body_timeout"):
        headers["Connection"] = "close"
    if error.is_untouched:
        headers[UNTOUCHED] = "1"
    return Response(msgspec.json.encode(problem), status, headers, MEDIA)
