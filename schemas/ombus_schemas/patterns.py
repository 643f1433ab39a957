"""Secrets nobody listed, told by their shape: a versioned set of patterns, published as JSON.

A pattern finds; evidence decides, so that ``api_key = os.environ[...]`` and ``password: string``
stay. Every regex keeps to what RE2 reads (no lookaround, no backreference, no possessive repeat)
and is linear in Python's engine too: a repeat is either bounded, or its run cannot hold the
beginning of another match. Anchors say cheaply that a text holds nothing.
"""

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec

from ombus_schemas.jsontext import JsonObject
from ombus_schemas.redaction import MARKER

VERSION: Final = "patterns/1"
"""A set that finds more, or less, is another version."""

Evidence = Literal["shape", "dotted", "mixed", "strong", "key", "basic"]
"""What the group must show beyond its shape.

``dotted``: parts with dots between. ``mixed``: a letter, a digit, 2.5 bits a character, no number,
no beginning of code. ``strong``: ``mixed`` of three classes. ``key``: ``mixed``, or letters of both
cases. ``basic``: base64 of text with a colon.
"""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """One shape. What the group of ``regex`` that takes part holds is replaced."""

    name: str
    regex: str
    anchors: tuple[str, ...]
    """One of these stands in every match; in lower case where the regex ignores case."""
    evidence: Evidence = "shape"
    is_loose: bool = False
    """Not looked for inside decoded base64, where random bytes would match it."""


_BEFORE: Final = r"(?:\b|_|\\[nrt]|%[0-9A-Fa-f]{2})"
"""Where a token may begin: also after the escapes of JSON and of URLs."""
_NAME: Final = (
    r"(?:api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|signing[_-]?key|"
    r"encryption[_-]?key|secret|passw(?:or)?d|passphrase|pwd|token|credentials?|authorization)"
)
_NAMES: Final = rf"{_NAME}(?:[_.-][a-z0-9_.-]{{0,32}})?"
_QUOTES: Final = r"""(?:[\\"'`\]]|&quot;|&#3[49];|%22){0,4}"""
_IS: Final = r"[ \t]{0,8}(?:=>|:=|[:=]|%3[ad])[ \t]{0,8}"
_PEM: Final = r"(?:[A-Z0-9 +]|%20){0,60}PRIVATE(?: |\+|%20)KEY(?:(?: |\+|%20)BLOCK)?-----"

PATTERNS: Final = (
    Pattern(
        name="pem_private_key",
        regex=rf"(-----BEGIN(?: |\+|%20){_PEM}"
        rf"(?:[^-]*(?:-{{1,4}}[^-]+)*-----END(?: |\+|%20){_PEM}"
        r"|[A-Za-z0-9+/=\s\\%]*))",
        anchors=("-----BEGIN",),
    ),
    Pattern(
        name="aws_key_id",
        regex=r"((?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})",
        anchors=("AKIA", "ASIA", "ABIA", "ACCA"),
    ),
    Pattern(
        name="github_token",
        regex=r"(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})",
        anchors=("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    ),
    Pattern(name="gitlab_token", regex=r"(glpat-[A-Za-z0-9_-]{20,})", anchors=("glpat-",)),
    Pattern(
        name="sk_key",
        regex=rf"{_BEFORE}(sk-[A-Za-z0-9_.-]{{16,}})",
        anchors=("sk-",),
        evidence="key",
    ),
    Pattern(
        name="slack_token",
        regex=r"(xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,})",
        anchors=("xox", "xapp-"),
    ),
    Pattern(
        name="webhook",
        regex=r"(?:hooks\.slack\.com/(?:services|workflows)/|"
        r"discord(?:app)?\.com/api/webhooks/)([A-Za-z0-9/_-]{20,})",
        anchors=("hooks.slack.com/", "/api/webhooks/"),
    ),
    Pattern(
        name="stripe_key",
        regex=r"((?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{20,}={0,2})",
        anchors=("k_live_", "k_test_", "whsec_"),
    ),
    Pattern(
        name="google_key",
        regex=r"(AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
        anchors=("AIza", "ya29.", "GOCSPX-"),
    ),
    Pattern(
        name="service_token",
        regex=r"(hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|"
        r"do[oprt]_v1_[a-f0-9]{64}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|"
        r"pplx-[A-Za-z0-9]{40,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})",
        anchors=("hf_", "npm_", "pypi-", "_v1_", "gsk_", "xai-", "pplx-", "SG."),
    ),
    Pattern(name="twilio_key", regex=r"\b(SK[0-9a-f]{32})\b", anchors=("SK",)),
    Pattern(name="telegram_token", regex=r"([0-9]{8,10}:AA[A-Za-z0-9_-]{33})", anchors=(":AA",)),
    Pattern(
        name="jwt",
        regex=r"(eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]+){0,4})",
        anchors=("eyJ",),
        evidence="dotted",
    ),
    Pattern(
        name="authorization_header",
        regex=rf"(?i)authorization{_QUOTES}{_IS}{_QUOTES}"
        r"(?:bearer|basic|token|apikey|digest|negotiate|aws4-hmac-sha256)[ \t]{1,4}"
        r"""([^\r\n"'\\]{4,})""",
        anchors=("authorization",),
    ),
    Pattern(
        name="bearer_token",
        regex=r"(?i)\bbearer(?:[ \t]{1,4}|%20|\+)([A-Za-z0-9._~+/=-]{16,})",
        anchors=("bearer",),
        evidence="key",
    ),
    Pattern(
        name="basic_credentials",
        regex=r"(?i)\bbasic[ \t]{1,4}([A-Za-z0-9+/_-]{8,}={0,2})",
        anchors=("basic",),
        evidence="basic",
    ),
    Pattern(
        name="cookie_header",
        regex=rf"(?i)cookie{_QUOTES}{_IS}{_QUOTES}"
        r"""([^\s=;,"'\\]{1,128}=[^\r\n"'\\]{4,})""",
        anchors=("cookie",),
        is_loose=True,
    ),
    Pattern(
        name="url_password",
        regex=r"""://[^\s/?#:@"'<>\\]*:([^\s/?#"'<>\\]+)@""",
        anchors=("://",),
        is_loose=True,
    ),
    Pattern(
        name="url_token",
        regex=r"""://([^\s/?#:@"'<>\\]{16,})@""",
        anchors=("://",),
        evidence="mixed",
        is_loose=True,
    ),
    Pattern(
        name="user_password_at_host",
        regex=r"""[A-Za-z0-9._-]:([^\s:/@"'<>\\]{8,})@[A-Za-z0-9]""",
        anchors=("@",),
        evidence="strong",
        is_loose=True,
    ),
    Pattern(
        name="assigned",
        regex=rf"""(?i){_NAMES}{_QUOTES}{_IS}(?:\\?"([^"\\\s]{{6,}})\\?"|\\?'([^'\\\s]{{6,}})\\?'|"""
        rf"""{_QUOTES}([^\s"'`,;&<>\\]{{5,}}[^\s"'`,;&<>\\)\]}}]))""",
        anchors=("key", "secret", "passw", "passphrase", "pwd", "token", "credential", "authoriz"),
        evidence="mixed",
        is_loose=True,
    ),
    Pattern(
        name="option",
        regex=r"(?i)-(?:password|passwd|token|api-?key|secret)[ \t]{1,4}"
        r"""["']?([^\s"'`\\]{6,})""",
        anchors=("-password", "-passwd", "-token", "-api-key", "-apikey", "-secret"),
        evidence="mixed",
        is_loose=True,
    ),
)

_FLAGS: Final = re.ASCII
"""Without it, case-insensitive matches would take U+212A for a ``k``."""


def conceal_shapes(text: str) -> str:
    """Return ``text`` with what matches a pattern replaced, in time linear in its length."""
    lowered = text.lower()
    for finder in _FINDERS:
        if finder.may_match(text, lowered):
            text = finder.replaced(text)
    return text


def conceal_base64(text: str, is_secret: Callable[[str], bool]) -> str:
    """Return ``text`` without the base64 runs, over lines too, whose content is secret."""

    def judged(run: re.Match[str]) -> str:
        return MARKER if is_secret("\n".join(_decodings(run[0]))) else run[0]

    return _RUN.sub(judged, text)


def holds_shape(text: str) -> bool:
    """Say whether decoded base64 holds a secret by its shape."""
    lowered = text.lower()
    return any(
        finder.may_match(text, lowered) and finder.matches(text)
        for finder in _FINDERS
        if not finder.pattern.is_loose
    )


def is_secret_member(name: str, value: str) -> bool:
    """Say whether a member of an object holds a secret by its name and by what it looks like."""
    if len(name) > _MAX_NAME_CHARS:
        return False
    if _COOKIE_NAME.fullmatch(name):
        return "=" in value or _is_mixed(value)
    if not _SECRET_NAME.search(name):
        return False
    said = _SCHEME.sub("", value.strip(), count=1)
    return not re.search(r"\s", said) and _is_mixed(said)


def document() -> JsonObject:
    """Return the published form of the set."""
    return {
        "version": VERSION,
        "marker": MARKER,
        "regexSyntax": "RE2, ASCII classes; the group that takes part is replaced, in this order",
        "patterns": [msgspec.to_builtins(pattern) for pattern in PATTERNS],
    }


_NAME_LOWERED: Final = re.compile(_NAME, re.ASCII)
_MAX_NAME_CHARS: Final = 128
_MIN_BITS: Final = 2.5
_MEASURED_CHARS: Final = 512
_MAX_GLUED_CHARS: Final = 8_192
_SECRET_NAME: Final = re.compile(rf"{_NAMES}\Z", re.ASCII | re.IGNORECASE)
_COOKIE_NAME: Final = re.compile(r"(?:set[_-]?)?cookies?", re.ASCII | re.IGNORECASE)
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|apikey)\s+", re.ASCII | re.IGNORECASE)
_CODE: Final = re.compile(r"[$%{(\[<]|(?:[A-Za-z_][\w-]*[.:]+)*[A-Za-z_]\w*[(\[{]", re.ASCII)
"""What a value begins with that a program computes: a call, a subscript, a placeholder."""
_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{16,}"
    r"(?:(?:\\r)?(?:\\n|\r?\n)[ \t]{0,8}[A-Za-z0-9+/_-]+)*={0,2}",
    re.ASCII,
)
_NOT_BASE64: Final = re.compile(r"(?:\\r)?(?:\\n|\r?\n)[ \t]*|=")
_URL_SAFE: Final = str.maketrans("-_", "+/")


class _Finder:
    """A pattern, compiled."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._regex = re.compile(pattern.regex, _FLAGS)
        self._ignores_case = pattern.regex.startswith("(?i)")
        self._begins_with_name = pattern.regex.startswith(f"(?i){_NAME}")

    def may_match(self, text: str, lowered: str) -> bool:
        searched = lowered if self._ignores_case else text
        return any(anchor in searched for anchor in self.pattern.anchors)

    def matches(self, text: str) -> bool:
        return any(self._is_evident(match) for match in self._regex.finditer(text))

    def replaced(self, text: str) -> str:
        found = self._at_names(text) if self._begins_with_name else self._regex.finditer(text)
        parts: list[str] = []
        end = 0
        for match in found:
            if self._is_evident(match):
                start, after = match.span(match.lastindex or 0)
                parts += [text[end:start], MARKER]
                end = after
        return "".join([*parts, text[end:]]) if parts else text

    def _at_names(self, text: str) -> Iterator[re.Match[str]]:
        """Yield what ``finditer`` does, many times faster: the names are looked for by themselves.

        Lower-casing may change the length of text that is not ASCII; then nothing is gained.
        """
        lowered = text.lower()
        if len(lowered) != len(text):
            yield from self._regex.finditer(text)
            return
        end = 0
        for name in _NAME_LOWERED.finditer(lowered):
            match = self._regex.match(text, name.start()) if name.start() >= end else None
            if match is not None:
                end = match.end()
                yield match

    def _is_evident(self, match: re.Match[str]) -> bool:
        return _is_evident(self.pattern.evidence, match[match.lastindex or 0])


def _is_evident(evidence: Evidence, value: str) -> bool:
    match evidence:
        case "shape":
            return True
        case "dotted":
            return "." in value
        case "mixed":
            return _is_mixed(value)
        case "strong":
            return _n_classes(value) >= 3 and _is_mixed(value)
        case "key":
            has_both = value.lower() != value and value.upper() != value
            return _is_mixed(value) or has_both
        case "basic":
            return any(":" in each and each.isprintable() for each in _decodings(value)[:1])


def _is_mixed(value: str) -> bool:
    has_letter = any(char.isalpha() for char in value)
    has_digit = any(char.isdigit() for char in value)
    if not (has_letter and has_digit) or len(value) < 6 or _CODE.match(value):
        return False
    try:
        float(value)
    except ValueError:
        return _bits(value[:_MEASURED_CHARS]) >= _MIN_BITS
    return False


def _n_classes(value: str) -> int:
    tests = (str.islower, str.isupper, str.isdigit, _is_symbol)
    return sum(any(test(char) for char in value) for test in tests)


def _is_symbol(char: str) -> bool:
    return not char.isalnum()


def _bits(value: str) -> float:
    """Return the entropy of the characters of ``value`` in bits a character."""
    n = len(value)
    return -sum(count / n * math.log2(count / n) for count in Counter(value).values())


def _decodings(run: str) -> list[str]:
    """Return what a base64 run says, beginning at each of the four places of a group.

    Something may be glued before a short one, as a path is; a long one begins where it begins.
    """
    packed = _NOT_BASE64.sub("", run).translate(_URL_SAFE)
    found: list[str] = []
    for first in range(4 if len(packed) <= _MAX_GLUED_CHARS else 1):
        part = packed[first:]
        part = part[: len(part) - (len(part) % 4 == 1)]
        try:
            raw = base64.b64decode(part + "=" * (-len(part) % 4))
        except (binascii.Error, ValueError):
            continue
        try:
            found.append(raw.decode())
        except UnicodeDecodeError:
            found.append(raw.decode("latin-1"))
    return found


_FINDERS: Final = tuple(_Finder(pattern) for pattern in PATTERNS)
