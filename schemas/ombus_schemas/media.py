"""Media leave an entry and a reference stays: the log holds words, a blob store holds pictures.

What counts as media: a data URL anywhere, and ``data`` of an object that names a media type or is
an ``image``, ``audio``, ``file``, ``document`` or ``base64`` block (pi, Anthropic, OpenAI shapes).
"""

import base64
import binascii
import re
from hashlib import sha256
from typing import Final

from ombus_schemas.jsontext import JsonObject, JsonValue

_DATA_URL: Final = re.compile(r"data:([a-z0-9.+-]+/[a-z0-9.+-]+)?(?:;[^;,]{1,64})*;base64,", re.I)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_\-\s]*={0,2}\s*")
_MEDIA_TYPE_KEYS: Final = ("mimeType", "media_type", "mime_type", "mediaType")
_MEDIA_BLOCKS: Final = frozenset({"image", "audio", "file", "document", "base64", "video"})
_URL_SAFE: Final = str.maketrans("-_", "+/")


def with_references(value: JsonValue, max_inline: int) -> JsonValue:
    """Return ``value`` with base64 media of more than ``max_inline`` characters referred to.

    A reference is ``{sha256, bytes, mimeType?}`` of the decoded media, in the place of its text.
    The same object comes back if there is nothing to refer to.
    """
    match value:
        case str():
            return _url_reference(value) or value if len(value) > max_inline else value
        case list():
            items = [with_references(item, max_inline) for item in value]
            is_same = all(new is old for new, old in zip(items, value, strict=True))
            return value if is_same else items
        case dict():
            members: JsonObject = {
                key: _data_reference(value, item, max_inline) or with_references(item, max_inline)
                if key == "data"
                else with_references(item, max_inline)
                for key, item in value.items()
            }
            return value if all(members[key] is value[key] for key in value) else members
        case _:
            return value


def _url_reference(text: str) -> JsonObject | None:
    head = _DATA_URL.match(text)
    return _reference(text[head.end() :], head[1]) if head else None


def _data_reference(block: JsonObject, data: JsonValue, max_inline: int) -> JsonObject | None:
    if not isinstance(data, str) or len(data) <= max_inline:
        return None
    media_type = next((block[key] for key in _MEDIA_TYPE_KEYS if key in block), None)
    if media_type is None and block.get("type") not in _MEDIA_BLOCKS:
        return None
    return _reference(data, media_type if isinstance(media_type, str) else None)


def _reference(text: str, media_type: str | None) -> JsonObject | None:
    if _BASE64.fullmatch(text) is None:
        return None
    try:
        raw = base64.b64decode(text.translate(_URL_SAFE))
    except (binascii.Error, ValueError):
        return None
    reference: JsonObject = {"sha256": sha256(raw).hexdigest(), "bytes": len(raw)}
    if media_type:
        reference["mimeType"] = media_type
    return reference
