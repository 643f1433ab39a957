"""Known secrets in every form they travel in: needles for the exact replacement of ``redaction``.

A value is found as itself and as JSON, HTML, a URL or base64 would spell it, so that a password in
a query string or in a ``Basic`` header is as gone as the password itself. The replacement stays
that of S9: what is clever happens here, once, when the values are loaded.
"""

import base64
import html
import json
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from ombus_schemas.redaction import MARKER

MIN_CHARS: Final = 4
"""A shorter value would shred every text it is looked for in."""
MIN_BASE64_CHARS: Final = 8
"""What of a value's base64 form does not depend on its neighbours must be at least this long."""
MIN_LINE_CHARS: Final = 20
"""Lines of a value with line breaks are needles of their own from this length on."""
MAX_CHARS: Final = 65_536


class BadSecret(ValueError):
    """A known value that cannot be looked for. ``line`` counts from 1; the value is not named."""

    def __init__(self, line: int, fact: str) -> None:
        super().__init__(line, fact)
        self.line, self.fact = line, fact

    def __str__(self) -> str:
        return f"secret on line {self.line} {self.fact}"


def parse_secrets(text: str) -> tuple[str, ...]:
    """Return the values of a secrets file, as they stand there.

    One value a line. A line that begins with ``"`` is a JSON string, for values with line breaks,
    blanks at an end, or ``#`` in front; ``#`` begins a comment line. Blanks around a line are none
    of the value.

    Raises:
        BadSecret: a value too short or too long to look for, or a malformed JSON string.
    """
    values: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        value = _quoted(said, number) if said.startswith('"') else said
        _check(value, number)
        values.append(value)
    return tuple(values)


def needles(values: Iterable[str]) -> tuple[str, ...]:
    """Return every form of every value, longest first, each once.

    Longest first: a value that is a part of another must not leave the rest of it behind. A value
    that is a part of the marker itself is left out.

    Raises:
        BadSecret: a value too short or too long to look for; ``line`` is its place.
    """
    found: dict[str, None] = {}
    for number, value in enumerate(values, start=1):
        _check(value, number)
        found.update(dict.fromkeys(_forms(value)))
    return tuple(sorted((each for each in found if each not in MARKER), key=_longest_first))


def _longest_first(needle: str) -> tuple[int, str]:
    return -len(needle), needle


def _quoted(said: str, number: int) -> str:
    try:
        value = json.loads(said)
    except ValueError as error:
        raise BadSecret(number, "begins with a quote and is no JSON string") from error
    if not isinstance(value, str):
        raise BadSecret(number, "begins with a quote and is no JSON string")
    return value


def _check(value: str, number: int) -> None:
    if len(value.strip()) < MIN_CHARS:
        raise BadSecret(number, f"has fewer than {MIN_CHARS} characters: it would be everywhere")
    if len(value) > MAX_CHARS:
        raise BadSecret(number, f"has {len(value):,} characters, cap is {MAX_CHARS:,}")


def _forms(value: str) -> Iterator[str]:
    for spelt in _spelt(value):
        yield spelt
        yield from _json(spelt)
        yield from _url(spelt)
        yield from _html(spelt)
        yield from _base64(spelt.encode("utf-8", "surrogatepass"))


def _spelt(value: str) -> Iterator[str]:
    """Yield the value, without its outer line breaks, with the other kind of them, and by line."""
    yield value
    if "\n" not in value:
        return
    inner = value.strip("\r\n").replace("\r\n", "\n")
    yield inner
    yield inner.replace("\n", "\r\n")
    for line in inner.split("\n"):
        if len(line.strip()) >= MIN_LINE_CHARS and not line.startswith("-----"):
            yield line.strip()


def _json(value: str) -> Iterator[str]:
    """Yield the value inside a JSON text, and inside a JSON text inside another."""
    for to_ascii in (False, True):
        once = json.dumps(value, ensure_ascii=to_ascii)[1:-1]
        yield once
        yield once.replace("/", "\\/")
        yield json.dumps(once, ensure_ascii=to_ascii)[1:-1]


def _url(value: str) -> Iterator[str]:
    raw = value.encode("utf-8", "surrogatepass")
    for spelt in (quote(raw, safe=""), quote(raw), quote_plus(raw), quote(raw, safe=_SUB_DELIMS)):
        yield spelt
        yield _lower_hex(spelt)


_SUB_DELIMS: Final = "!$&'()*+,;=:@/?~"
"""What stands for itself in a query or a password (RFC 3986)."""


def _lower_hex(spelt: str) -> str:
    head, *escaped = spelt.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in escaped)])


def _html(value: str) -> Iterator[str]:
    yield html.escape(value, quote=False)
    named = html.escape(value)
    yield named
    yield named.replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    yield named.replace("&#x27;", "&apos;")


def _base64(raw: bytes) -> Iterator[str]:
    """Yield what is the same wherever the value stands in what was encoded.

    A value begins at one of three places of a group; the first and the last character of its
    encoding may also depend on its neighbours, so they are not part of the needle.
    """
    for n_before in range(3):
        encoded = base64.b64encode(b"\0" * n_before + raw).rstrip(b"=").decode()
        first = (0, 2, 3)[n_before]
        last = len(encoded) - (1 if (n_before + len(raw)) % 3 else 0)
        core = encoded[first:last]
        if len(core) >= MIN_BASE64_CHARS:
            yield core
            yield core.replace("+", "-").replace("/", "_")
