"""As much of PromQL as our expressions use: what they name, and whether they can be read at all."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

FUNCTIONS: Final = frozenset({"rate", "increase", "histogram_quantile", "label_values"})
AGGREGATES: Final = frozenset({"sum", "max", "min", "count", "avg"})
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<string>\"[^\"]*\")|(?P<range>\[[^\]]*\])|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<mark>=~|!~|!=|>=|<=|==|[(){},=<>/*+-]))"
)
_RANGE: Final = re.compile(r"\[(\d+[smhd]|\$__rate_interval)\]")
_CLOSING: Final = {"(": ")", "{": "}"}


class Unreadable(ValueError):
    """No expression, or one with more in it than ours have."""


class Selector(msgspec.Struct, frozen=True):
    """One series that is asked for: under which function, over which labels."""

    name: str
    labels: tuple[str, ...]
    function: str
    has_range: bool


class Expression(msgspec.Struct, frozen=True):
    """What an expression names."""

    selectors: tuple[Selector, ...]
    grouped_by: tuple[str, ...]


def parse(text: str) -> Expression:
    """Return what ``text`` names.

    Raises:
        Unreadable: it is no expression of ours.
    """
    tokens = list(_tokens(text))
    selectors: list[Selector] = []
    grouped: list[str] = []
    opened: list[tuple[str, str]] = []
    at = 0
    while at < len(tokens):
        kind, value = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind == "name" and value in FUNCTIONS | AGGREGATES:
            if following == "by":
                at, names = _names(tokens, at + 2)
                grouped += names
            if at + 1 >= len(tokens) or tokens[at + 1][1] != "(":
                raise Unreadable(f"{value} is called with nothing: {text}")
            opened.append(("(", value))
            at += 1
        elif kind == "name":
            labels: list[str] = []
            if following == "{":
                at, labels = _matchers(tokens, at + 1)
            has_range = at + 1 < len(tokens) and tokens[at + 1][0] == "range"
            function = opened[-1][1] if opened else ""
            selectors.append(Selector(value, tuple(labels), function, has_range))
            at += has_range
        elif value == "(":
            opened.append(("(", ""))
        elif value == ")":
            if not opened:
                raise Unreadable(f"one ) too many: {text}")
            opened.pop()
        elif value in "{}" or kind == "range":
            raise Unreadable(f"{value} stands alone: {text}")
        at += 1
    if opened:
        raise Unreadable(f"a ( is left open: {text}")
    return Expression(tuple(selectors), tuple(grouped))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unreadable(f"at {at}: {text}")
        kind = found.lastgroup or ""
        value = found.group(kind)
        if kind == "range" and _RANGE.fullmatch(value) is None:
            raise Unreadable(f"{value} is no range: {text}")
        yield kind, value
        at = found.end()


def _names(tokens: list[tuple[str, str]], at: int) -> tuple[int, list[str]]:
    """Return where ``(a, b)`` at ``at`` ends, and what it lists."""
    end = next(n for n in range(at, len(tokens)) if tokens[n][1] == ")")
    if tokens[at][1] != "(":
        raise Unreadable("by lists nothing")
    return end, [value for kind, value in tokens[at:end] if kind == "name"]


def _matchers(tokens: list[tuple[str, str]], at: int) -> tuple[int, list[str]]:
    """Return where ``{a="b"}`` at ``at`` ends, and the labels it matches."""
    end = next((n for n in range(at, len(tokens)) if tokens[n][1] == "}"), None)
    if end is None:
        raise Unreadable("a { is left open")
    inside = tokens[at + 1 : end]
    labels = [value for kind, value in inside if kind == "name"]
    if len(labels) != sum(kind == "string" for kind, _ in inside):
        raise Unreadable("a label is matched with nothing")
    return end, labels
