"""What a program's result says of itself: exit code, error, test counts, commit; never its prose.

A result is text a model may be fooled by. Lines that speak to a model are not quoted at all.
"""

import re
from typing import Final

import msgspec
from ombus_schemas.jsontext import JsonValue

from ombus_streams.providers.lines import COLOUR, clean

_EXIT: Final = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|exit_code\"?|exitCode\"?|returncode)[:= ]+"
    r"(-?\d{1,3})\b",
    re.I,
)
_ERROR: Final = re.compile(
    r"^.{0,80}?(?:\b\w*(?:Error|Exception)\b:?|\berror(?:\[\w+\]| TS\d+)?:|\bERR!|\bfatal:|"
    r"\bpanic(?:ked)?\b|command not found|No such file or directory|Permission denied|\bFAILED\b|"
    r"\bCannot (?:find|read)).*$",
    re.M,
)
_WENT_WRONG: Final = re.compile(
    r"\b(?:not (?:found|exist|allowed|permitted|a |an )|no such|no match\w*|denied|refused|"
    r"reject\w+|timed? ?out|invalid|unable|missing|abort\w*|unexpected|expected|unknown|"
    r"unsupported|failed|failure|(?:could|can|does|did|is|was)(?: not|n't)|exceed\w*|conflict\w*|"
    r"killed|too (?:large|many))\b",
    re.I,
)
"""What a tool says when it fails; other lines of it are prose and stay where they are."""
_TESTS: Final = re.compile(
    r"(?P<pytest>(?:\d+ \w+, )*\d+ (?:passed|failed)(?:, \d+ \w+)*(?: in [\d.]+s)?)|"
    r"(?P<cargo>test result: (?:ok|FAILED)\. \d+ passed; \d+ failed)|"
    r"(?P<jest>Tests:\s+[^\n]{0,80}\btotal\b)|"
    r"(?P<mocha>\b\d+ passing\b(?:[^\n]*\n\s*\d+ failing)?)|"
    r"(?P<unittest>Ran \d+ tests? in [\d.]+s\s+(?:OK|FAILED[^\n]*))|"
    r"(?P<node>ℹ pass \d+\s+ℹ fail \d+|# pass \d+\s+# fail \d+)"
)
_FAILED_TEST: Final = re.compile(r"^(?:FAILED|--- FAIL:|✖|×|not ok \d+ -)\s+(\S[^\n]{0,80})", re.M)
_BAD_COUNT: Final = re.compile(r"\b[1-9]\d* (?:failed|errors?|failing)|FAILED|\bfail [1-9]")
_COMMIT: Final = re.compile(r"^\[([\w./-]+)(?: \(root-commit\))? ([0-9a-f]{7,40})\] (.+)$", re.M)
_TO_A_MODEL: Final = re.compile(
    r"\b(?:ignore|disregard|forget) (?:all|any|the|your|previous|prior)|system prompt|"
    r"\binstructions?\b|\b(?:you (?:must|should|are now)|the user (?:wants|said|asked)|as an ai|"
    r"assistant:|user:|human:)",
    re.I,
)

MAX_READ_CHARS: Final = 6_000
"""Of one result, head and tail each: where programs say how they ended."""
MAX_QUOTED_CHARS: Final = 140
MAX_NAMED_TESTS: Final = 2
_TEXT_KEYS: Final = ("text", "content", "output", "stdout", "stderr", "message", "error", "result")
_CODE_KEYS: Final = ("exitCode", "exit_code", "returncode")


class Commit(msgspec.Struct, frozen=True):
    """What git printed."""

    branch: str
    hash: str
    subject: str


def text_of(value: JsonValue) -> str:
    """Return the head and tail of a result's text without colours, its exit code spelled out."""
    text = _text(value)
    if "\x1b" in text:
        text = COLOUR.sub("", text)
    if len(text) <= 2 * MAX_READ_CHARS:
        return text
    return f"{text[:MAX_READ_CHARS]}\n{text[-MAX_READ_CHARS:]}"


def exit_code(text: str) -> int | None:
    """Return the last exit code the text ends with, if it names one."""
    found = _last(_EXIT, text[-400:] if len(text) > 800 else text)
    code = re.search(r"-?\d+\Z", found) if found else None
    return int(code[0]) if code else None


def error_line(text: str) -> str:
    """Return the line that names the error, or nothing."""
    lines = [clean(match[0]) for match in _ERROR.finditer(text)]
    # What npm says is that something failed, not what.
    lines.sort(key=lambda line: line.startswith("npm "))
    # A traceback names its error last, a compiler its first error first.
    if "Traceback (most recent call last)" in text:
        lines.reverse()
    return next((quoted(line) for line in lines if not _TO_A_MODEL.search(line)), "")


def failure_line(text: str, is_last_first: bool = False) -> str:
    """Return a line that says what went wrong without the word error, or nothing."""
    lines = text.split("\n")
    for raw in reversed(lines) if is_last_first else lines:
        line = clean(raw)
        if _WENT_WRONG.search(line) and not (_EXIT.search(line) or _TO_A_MODEL.search(line)):
            return quoted(line)
    return ""


def test_counts(text: str) -> str:
    """Return what a test runner counted last, or nothing."""
    return _last(_TESTS, text)


def counts_failures(counts: str) -> bool:
    """Say whether a test runner's counts hold a failure."""
    return _BAD_COUNT.search(counts) is not None


def failed_tests(text: str) -> list[str]:
    """Return the names of the first failed tests."""
    named = (clean(item) for item in _FAILED_TEST.findall(text)[:MAX_NAMED_TESTS])
    return [item for item in named if not _TO_A_MODEL.search(item)]


def commit_of(text: str) -> Commit | None:
    """Return the commit git says it made."""
    found = _COMMIT.search(text)
    if found is None or _TO_A_MODEL.search(found[3]):
        return None
    return Commit(branch=found[1], hash=found[2], subject=found[3])


def quoted(text: str) -> str:
    """Return ``text`` cut between words to what a line has room for."""
    if len(text) <= MAX_QUOTED_CHARS:
        return text
    return text[: MAX_QUOTED_CHARS - 1].rsplit(" ", 1)[0] + "…"


def _text(value: JsonValue) -> str:
    match value:
        case str():
            return value
        case list():
            return "\n".join(part for part in map(_text, value[:20]) if part)
        case dict():
            parts = [_text(value[key]) for key in _TEXT_KEYS if key in value]
            code = next((value[key] for key in _CODE_KEYS if key in value), None)
            if isinstance(code, int) and not isinstance(code, bool):
                parts.append(f"exit code {code}")
            return "\n".join(part for part in parts if part)
        case _:
            return ""


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = ""
    for match in pattern.finditer(text):
        found = match[0]
    return found
