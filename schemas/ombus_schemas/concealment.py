"""Secrets out of whatever is about to leave: the known ones, and those told by their shape.

``redaction`` replaces what it is given and nothing else; that is the rule of reads. What goes to a
model, into an error, a log line or the dead letters is concealed: known values first, then the
pattern set. Both work on decoded strings and keys, so the result is a value of the same shape.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.patterns import conceal_base64, conceal_shapes, holds_shape, is_secret_member
from ombus_schemas.redaction import MARKER, TOO_DEEP, free_key, redact_text

MAX_DEPTH: Final = 128
"""Containers this deep or deeper are replaced; what admission has seen is never that deep."""
MAX_LAYERS: Final = 2
"""Base64 of base64 is looked into this often."""
_NAMERS: Final = ("name", "key", "header")
"""Members that name what ``value`` beside them holds: headers and cookies in lists."""


def conceal_text(text: str, secrets: Sequence[str] = ()) -> str:
    """Return ``text`` without known secrets, secret shapes, and base64 that holds either.

    Linear in the length for a given list of secrets. Concealing the result again changes nothing,
    but for secrets that the marker itself contains.
    """
    concealed = conceal_shapes(redact_text(text, secrets))
    return conceal_base64(concealed, partial(_is_secret, secrets, MAX_LAYERS - 1))


def conceal(value: JsonValue, secrets: Sequence[str] = (), depth: int = MAX_DEPTH) -> JsonValue:
    """Return ``value`` with its strings and keys concealed, and members that a name gives away.

    Keys that become equal get ``__2``, ``__3``…, as in ``redaction.redact``.
    """
    if isinstance(value, str):
        return conceal_text(value, secrets)
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        return TOO_DEEP
    if isinstance(value, list):
        return [conceal(item, secrets, depth - 1) for item in value]
    named = _named(value)
    result: JsonObject = {}
    for key, item in value.items():
        name = named if named is not None and key == "value" else key
        is_secret = isinstance(item, str) and is_secret_member(name, item)
        shown = free_key(conceal_text(key, secrets), result)
        result[shown] = MARKER if is_secret else conceal(item, secrets, depth - 1)
    return result


def conceal_bytes(raw: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a bad record's bytes without secrets; all other bytes are as they came.

    What was JSON stays JSON. Only if the bytes cannot be mended in place (a secret behind an escape
    or given away by its key) is the value written anew.
    """
    value, is_json = _read(raw)
    concealed = conceal(value, secrets) if is_json else value
    if is_json and concealed == value:
        return raw
    text = raw.decode("utf-8", "surrogateescape")
    mended = conceal_text(text, secrets).encode("utf-8", "surrogateescape")
    if not is_json:
        return mended
    again, is_json = _read(mended)
    if is_json and conceal(again, secrets) == again:
        return mended
    return _encode(concealed)


def conceal_entry(entry: Entry, secrets: Sequence[str] = ()) -> Entry:
    """Return ``entry`` as a model may see it: its words concealed, its ids and kind left alone."""
    tree: JsonObject = msgspec.to_builtins(entry)
    words: JsonObject = {name: conceal(tree[name], secrets) for name in _WORDS if name in tree}
    message = tree.get("message")
    if isinstance(message, dict):
        said: JsonObject = {
            name: conceal(message[name], secrets) for name in _SAID if name in message
        }
        words["message"] = {**message, **said}
    if all(words[name] == tree[name] for name in words):
        return entry
    return msgspec.convert({**tree, **words}, Entry)


_WORDS: Final = ("event", "data", "metadata", "summary", "label", "model", "previousModel")
_SAID: Final = ("content", "metadata")
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def _read(raw: bytes) -> tuple[JsonValue, bool]:
    try:
        return _decode(raw), True
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None, False


def _is_secret(secrets: Sequence[str], n_layers: int, text: str) -> bool:
    if any(secret and secret in text for secret in secrets) or holds_shape(text):
        return True
    if not n_layers:
        return False
    return conceal_base64(text, partial(_is_secret, secrets, n_layers - 1)) != text


def _named(value: JsonObject) -> str | None:
    if not isinstance(value.get("value"), str):
        return None
    for namer in _NAMERS:
        name = value.get(namer)
        if isinstance(name, str):
            return name
    return None
