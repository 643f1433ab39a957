"""Record headers: readable without the body, and never part of what a fold believes.

CloudEvents 1.0 in binary mode, the W3C trace context, our schema version and origin. ``ce_time``
is the entry's own timestamp, never the time of sending, so that a record sent again is the same
record. The original append time of a replayed record is the one header a fold reads; only the
replaying principal may set it (design.md section 3).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord

Headers = Sequence[tuple[str, bytes]]

APPENDED_AT: Final = "ombus-appended-at"
"""Original append time in milliseconds since 1970, decimal."""
SCHEMA_VERSION_HEADER: Final = "ombus-schema-version"
ORIGIN_HEADER: Final = "ombus-origin"
FAILURE_REASON: Final = "ombus-failure-reason"
_ERRORS: Final = "__streams.errors."
"""Names of KIP-1034, which tools for dead letters know."""

_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_DIGITS: Final = re.compile(rb"[0-9]{1,15}")
_MAX_TRACESTATE_CHARS: Final = 512


class TraceContext(msgspec.Struct, kw_only=True, frozen=True):
    """The W3C context of whoever sent a record; a consumer links to it, it is no parent."""

    traceparent: str
    tracestate: str = ""


def headers_of(entry: Entry, trace: TraceContext | None = None) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record that carries ``entry``, in a fixed order."""
    headers = [
        ("ce_specversion", "1.0"),
        ("ce_id", entry.id),
        ("ce_source", f"/ombus/{entry.tenant_id}/{entry.session_id}"),
        ("ce_type", _type_of(entry)),
        ("content-type", "application/json"),
        (SCHEMA_VERSION_HEADER, str(entry.schema_version)),
    ]
    if entry.timestamp:
        headers.append(("ce_time", entry.timestamp))
    if entry.origin is not None:
        headers.append((ORIGIN_HEADER, entry.origin))
    if trace is not None:
        headers.append(("traceparent", trace.traceparent))
        if trace.tracestate:
            headers.append(("tracestate", trace.tracestate))
    return tuple((name, value.encode("utf-8", "replace")) for name, value in headers)


def trace_of(headers: Headers) -> TraceContext | None:
    """Return the trace context of a record, or ``None`` if it has none that is well-formed."""
    found = dict(headers)
    parent = _ascii(found.get("traceparent"))
    if parent is None or _TRACEPARENT.fullmatch(parent) is None:
        return None
    state = _ascii(found.get("tracestate")) or ""
    is_short = len(state) <= _MAX_TRACESTATE_CHARS
    return TraceContext(traceparent=parent, tracestate=state if is_short else "")


def replayed(headers: Headers, appended_at_ms: int) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record copied into another log.

    The original append time goes with it, an earlier one if there is one; the trace context stays
    behind, since a replay must not join traces of last year.
    """
    first = appended_at_of(headers)
    kept = [item for item in headers if item[0] not in _NOT_REPLAYED]
    at_ms = appended_at_ms if first is None else first
    return (*kept, (APPENDED_AT, str(at_ms).encode()))


def appended_at_of(headers: Headers) -> int | None:
    """Return the original append time in milliseconds, or ``None`` if the record is no copy."""
    value = dict(headers).get(APPENDED_AT)
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None


def dead_letter_headers(
    headers: Headers, error: BadRecord, topic: str, partition: int, offset: int
) -> tuple[tuple[str, bytes], ...]:
    """Return the original headers, untouched, and after them why and whence the record came.

    The message says what is wrong, never what was in the record.
    """
    facts: Mapping[str, str] = {
        f"{_ERRORS}exception": type(error).__name__,
        f"{_ERRORS}message": error.detail,
        f"{_ERRORS}topic": topic,
        f"{_ERRORS}partition": str(partition),
        f"{_ERRORS}offset": str(offset),
        FAILURE_REASON: error.reason,
    }
    return (*headers, *((name, value.encode("utf-8", "replace")) for name, value in facts.items()))


_NOT_REPLAYED: Final = frozenset({"traceparent", "tracestate", APPENDED_AT})


def _type_of(entry: Entry) -> str:
    name = entry.data_type
    return name if name.startswith("om.") and name.isascii() else f"ombus.entry.{entry.kind}"


def _ascii(value: bytes | None) -> str | None:
    return value.decode("ascii") if value is not None and value.isascii() else None
