"""Entries to bytes and back. Encoding is deterministic; decoding raises ``BadRecord`` or nothing.

Bytes: fields in declaration order, absent ones omitted, ``metadata`` and models with sorted keys,
``message``, ``event`` and ``data`` in the order they came, so that what was said is kept to the
letter (design.md section 15). Numbers are msgspec's: ``1e2`` comes back as ``100.0``.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.ids import is_entry_id, session_key, split_key
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.limits import MAX_DEPTH, MAX_ENTRY_BYTES
from ombus_schemas.upcast import upcast

_KEYS_REMEMBERED: Final = 4_096

_decode_entry: Final = msgspec.json.Decoder(Entry).decode
_decode_json: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="deterministic").encode
_part_ids: Final = lru_cache(maxsize=_KEYS_REMEMBERED)(split_key)


def encode(entry: Entry) -> bytes:
    """Return the bytes of ``entry``, the same for equal entries whose bodies have equal order.

    Raises what msgspec raises for values that are no JSON: admission has seen to it before.
    """
    maps = {name: value for name in _MAPS if (value := getattr(entry, name))}
    if maps:
        raw = {name: msgspec.Raw(_encode_sorted(value)) for name, value in maps.items()}
        entry = msgspec.structs.replace(entry, **raw)
    return _encode(entry)


def decode(value: bytes, max_bytes: int = MAX_ENTRY_BYTES) -> Entry:
    """Return the entry these bytes hold, of today's schema version.

    Only admission reads more than a record may hold, before media have left the entry.

    Raises:
        BadRecord: ``oversize``, ``json``, ``schema`` (no entry, or a field of another type),
            ``range`` (a number no reader can hold), ``depth``, ``id``. Nothing else, whatever the
            bytes are.
    """
    if len(value) > max_bytes:
        raise BadRecord("oversize", f"{len(value):,} bytes, cap is {max_bytes:,}")
    try:
        entry = _decode_entry(value)
    except RecursionError as error:
        raise _too_deep() from error
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise BadRecord(_reason(error), _QUOTED.sub("'…'", str(error))) from error
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError as error:
            # Fields that are none of ours were skipped, whatever their bytes are.
            raise BadRecord("json", f"is no UTF-8: {error.reason}") from error
    # Twice the length less two copies without brackets: counting by `count` costs thrice as much.
    n_opened = 2 * len(value) - len(value.replace(b"{", b"")) - len(value.replace(b"[", b""))
    if n_opened > MAX_DEPTH and _is_too_deep(value):
        raise _too_deep()
    if not is_entry_id(entry.id):
        raise BadRecord("id", "is not 1 to 200 printable ASCII characters without space")
    return entry if entry.schema_version == SCHEMA_VERSION else upcast(entry)


def decode_record(key: bytes | None, value: bytes | None) -> Entry:
    """Return the entry of a record whose key says the same as its body.

    Raises:
        BadRecord: as ``decode``, and ``null`` (no value), ``key`` (absent, no ``tenant/session``,
            or not those of the entry).
    """
    if value is None:
        raise BadRecord("null", "the record has no value")
    entry = decode(value)
    parts = _part_ids(key) if key is not None else None
    if parts is None:
        raise BadRecord("key", "is no tenant/session")
    if entry.tenant_id != parts[0] or entry.session_id != parts[1]:
        raise BadRecord("key", "contradicts tenantId and sessionId of the body")
    return entry


def key_of(entry: Entry) -> bytes:
    """Return the record key of ``entry``."""
    return session_key(entry.tenant_id, entry.session_id)


_QUOTED: Final = re.compile("'.*'", re.DOTALL)
"""Where the decoder's words quote the record."""
_MAPS: Final = ("model", "previous_model", "metadata")
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[][{}]")
_HOLDERS: Final = frozenset({dict, list})


def _is_too_deep(value: bytes) -> bool:
    """Say whether well-formed JSON nests deeper than the cap; also in what ``Entry`` skips.

    The decoder's own limit depends on how deep Python's stack happens to be; this one does not.
    Texts are full of brackets, so only a second, untyped decoding tells those from structure.
    """
    try:
        level: list[JsonValue] = [_decode_json(value)]
    except RecursionError:
        return True
    except (msgspec.DecodeError, ValueError, OverflowError):
        # Numbers and texts that no reader can hold, in fields that are none of ours.
        return _opens_too_many(_TEXT.sub(b"", value))
    for _ in range(MAX_DEPTH):
        below: list[JsonValue] = []
        for holder in level:
            if isinstance(holder, dict):
                below += [item for item in holder.values() if type(item) in _HOLDERS]
            elif isinstance(holder, list):
                below += [item for item in holder if type(item) in _HOLDERS]
        if not below:
            return False
        level = below
    return True


def _opens_too_many(brackets: bytes) -> bool:
    n_open = 0
    for found in _BRACKET.finditer(brackets):
        n_open += 1 if found[0] in b"{[" else -1
        if n_open > MAX_DEPTH:
            return True
    return False


def _too_deep() -> BadRecord:
    return BadRecord("depth", f"more than {MAX_DEPTH} objects and arrays are open at once")


def _reason(error: Exception) -> str:
    if "out of range" in str(error):
        return "range"
    return "schema" if isinstance(error, msgspec.ValidationError) else "json"
