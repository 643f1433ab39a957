"""One request that is allowed: who asks what of which session, and its query and body, typed."""

import asyncio
import re
from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec
from ombus_schemas.route import MAX_NUMBER, Param, Route
from starlette.requests import ClientDisconnect, Request

from ombus.gateway.problems import ApiError
from ombus.gateway.tokens import Principal
from ombus.tables import misfit

Value: TypeAlias = str | int | float | bool
Decoded = TypeVar("Decoded")

_TYPE_BY_NAME: Mapping[str, type[Value]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
}


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of who sends it."""

    token: str
    host: str
    origin: str | None
    """The page a browser sends it for; programs say none."""
    vouched: Principal | None = None
    """Another gateway has identified the caller, and asks in its name."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    route: Route
    principal: Principal
    key: bytes
    """``tenant/session``; empty for a route without a session."""
    path: Mapping[str, str]
    query: Mapping[str, Value]
    body: bytes = b""
    claim: Claim
    last_event_id: str | None = None

    def text(self, name: str) -> str | None:
        value = self.query.get(name)
        return value if isinstance(value, str) else None

    def whole(self, name: str) -> int | None:
        value = self.query.get(name)
        return value if isinstance(value, int) else None

    def number(self, name: str) -> float | None:
        value = self.query.get(name)
        return float(value) if isinstance(value, int | float) else None

    def decoded(self, kind: type[Decoded]) -> Decoded:
        """Return the body; an empty one is an empty object.

        Raises:
            ApiError: ``bad_request``; it names the field and never quotes the body.
        """
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError("bad_request", _misfit(error, kind)) from error


class Body:
    """The body of one request, read when it is wanted and kept then."""

    def __init__(self, request: Request, route: Route, max_bytes: int, seconds: float) -> None:
        self._request, self._route = request, route
        self._max_bytes, self._seconds = max_bytes, seconds
        self._read: bytes | None = None

    async def read(self) -> bytes:
        """Return the body, empty if the route takes none.

        Raises:
            ApiError: ``too_large``, ``body_timeout``, or ``bad_request``.
        """
        if self._read is None and self._route.body is not None:
            try:
                async with asyncio.timeout(self._seconds):
                    self._read = await body_of(self._request, self._max_bytes)
            except TimeoutError as error:
                raise ApiError("body_timeout") from error
        return self._read or b""


def claim_of(request: Request, vouched: Principal | None = None) -> Claim:
    """Return the claim of a request, to be judged."""
    said = request.headers.get("authorization", "")
    return Claim(
        token=said.removeprefix("Bearer ").strip(),
        host=request.headers.get("host", ""),
        origin=request.headers.get("origin"),
        vouched=vouched,
    )


_PUBLIC: Final = re.compile(
    r"Expected `[a-z0-9 |]+`"
    r"(, got `[a-z]+`| of length [<>=]+ \d+| [<>=]+ [-\d.]+| matching regex '.*')?"
    r"|Object missing required field `\w+`"
)
"""What msgspec says in words of the schema alone; its other texts may quote the value."""


def _misfit(error: Exception, kind: type) -> str:
    """Return where a body does not fit and what is expected; nothing of it is quoted."""
    if not isinstance(error, msgspec.ValidationError):
        return "the body is no JSON: a JSON object is expected"
    said, _, at = str(error).partition(" - at ")
    if _PUBLIC.fullmatch(said):
        fact = f"does not fit: {said[0].lower()}{said[1:]}"
    else:
        fields = {f"`$.{each.encode_name}`": each.type for each in msgspec.structs.fields(kind)}
        fact = misfit(fields[at]) if at in fields else "does not fit: another value is expected"
    return f"the body {fact}{f', at {at}' if at else ''}"


def query_of(params: tuple[Param, ...], given: Mapping[str, str]) -> dict[str, Value]:
    """Return the query as the route declares it; what it does not declare is passed over.

    Raises:
        ApiError: ``bad_request``, by the parameter's name.
    """
    found: dict[str, Value] = {}
    for param in params:
        text = given.get(param.name)
        if text is None:
            if param.required:
                raise ApiError("bad_request", f"{param.name} is missing")
            continue
        try:
            value = msgspec.convert(text, _TYPE_BY_NAME[param.type], strict=False)
        except (msgspec.ValidationError, ValueError, OverflowError) as error:
            raise ApiError("bad_request", f"{param.name} is no {param.type}") from error
        is_number = isinstance(value, int | float) and param.type in ("integer", "number")
        if is_number and not -MAX_NUMBER <= value <= MAX_NUMBER:  # type: ignore[operator]
            raise ApiError("bad_request", f"{param.name} is out of range")
        if param.minimum is not None and float(value) < param.minimum:
            raise ApiError("bad_request", f"{param.name} is below {param.minimum}")
        if param.one_of and value not in param.one_of:
            raise ApiError("bad_request", f"{param.name} is none of {', '.join(param.one_of)}")
        found[param.name] = value
    return found


async def body_of(request: Request, max_bytes: int) -> bytes:
    """Return the body; reading ends where it is too large, whatever it said of itself.

    Raises:
        ApiError: ``too_large``, or ``bad_request`` when the caller went away in the middle.
    """
    said = request.headers.get("content-length", "")
    fact = f"at most {max_bytes:,} bytes are read: send it in parts"
    if said.isdecimal() and (len(said) > 15 or int(said) > max_bytes):
        raise ApiError("too_large", fact)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise ApiError("too_large", fact)
    except ClientDisconnect as error:
        raise ApiError("bad_request", "the body ended too early") from error
    return bytes(body)
