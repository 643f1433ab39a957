"""Base64 media become a reference: kind, type, size and hash (formats.md section 0).

The bytes stay in the transcript. A reference is the same for the same bytes wherever they occur,
so ten copies of one screenshot cost ten short lines (cases.md B23).
"""

import base64
import binascii
import hashlib
import re
from typing import Final

from ombus_schemas.jsontext import JsonObject, JsonValue

_DATA_URL: Final = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_KINDS: Final = ("image", "audio", "file", "document")
_SMALL: Final = 256
"""A shorter string in a ``data`` field is taken for a value, not for media."""


def reference(kind: str, mime_type: str | None, encoded: str) -> JsonObject:
    """Return the block that stands for base64 text ``encoded``."""
    try:
        content = base64.b64decode(encoded, validate=False)
    except (binascii.Error, ValueError):
        content = encoded.encode()
    block: JsonObject = {"type": kind}
    if mime_type:
        block["mimeType"] = mime_type
    block["sha256"] = hashlib.sha256(content).hexdigest()
    block["bytes"] = len(content)
    return block


def linked(kind: str, url: str, mime_type: str | None = None) -> JsonObject:
    """Return the block for media at ``url``; a data URL is media by itself."""
    found = _DATA_URL.match(url)
    if found is not None:
        return reference(kind, mime_type or found[1] or None, url[found.end() :])
    block: JsonObject = {"type": kind}
    if mime_type:
        block["mimeType"] = mime_type
    block["url"] = url
    return block


def media_block(block: JsonObject) -> JsonObject | None:
    """Return the reference for a media block of any of the formats, or ``None`` if it is none."""
    kind = block.get("type")
    if kind in ("image_url", "input_image", "output_image"):
        url = block.get("image_url", block.get("url"))
        if isinstance(url, dict):
            url = url.get("url")
        return linked("image", url) if isinstance(url, str) else {"type": "image"}
    if kind == "input_audio":
        audio = block.get("input_audio")
        data = audio.get("data") if isinstance(audio, dict) else None
        return reference("audio", None, data) if isinstance(data, str) else {"type": "audio"}
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    found = _found(kind, block)
    name = block.get("name", block.get("title", block.get("filename")))
    return {**found, "name": name} if isinstance(name, str) else found


def without_media(value: JsonValue) -> JsonValue:
    """Return ``value`` with every media object in it, however deep, replaced by its reference."""
    if isinstance(value, list):
        return [without_media(item) for item in value]
    if not isinstance(value, dict):
        return value
    data = value.get("data")
    if isinstance(data, str) and len(data) > _SMALL:
        mime = value.get("mimeType", value.get("media_type", value.get("mime_type")))
        if isinstance(mime, str) or value.get("type") == "base64":
            kind = value.get("type")
            media = reference(
                kind if isinstance(kind, str) and kind in _KINDS else "file",
                mime if isinstance(mime, str) else None,
                data,
            )
            rest = {key: item for key, item in value.items() if key not in ("data", *media)}
            return {**media, **{key: without_media(item) for key, item in rest.items()}}
    return {key: without_media(item) for key, item in value.items()}


def _found(kind: str, block: JsonObject) -> JsonObject:
    source = block.get("source")
    holder = source if isinstance(source, dict) else block
    mime = _text(holder, "media_type", "mimeType", "mime_type") or _text(block, "mimeType")
    data = _text(holder, "data", "base64", "file_data")
    if data is not None:
        if data.startswith("data:"):
            return linked(kind, data, mime)
        if holder.get("type") == "text":
            return {"type": kind, "mimeType": mime or "text/plain", "text": data}
        return reference(kind, mime, data)
    url = _text(holder, "url", "uri", "file_id")
    if url is not None:
        return linked(kind, url, mime)
    sha, size = block.get("sha256"), block.get("bytes")
    kept: JsonObject = {"type": kind}
    if mime:
        kept["mimeType"] = mime
    if isinstance(sha, str):
        kept["sha256"] = sha
    if isinstance(size, int):
        kept["bytes"] = size
    return kept


def _text(holder: JsonObject, *names: str) -> str | None:
    for name in names:
        value = holder.get(name)
        if isinstance(value, str) and value:
            return value
    return None
