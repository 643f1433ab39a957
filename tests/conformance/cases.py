"""Conformance cases: how they are read, run and compared (the protocol is in ``runner``)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import Observation, Reflection, observation_of, reflection_of
from ombus_streams.memory.render import ADVISORY


class _Undefined:
    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Final = _Undefined()
"""What an adapter returns where the reference returned ``undefined``."""

ERROR: Final = "{{ERROR}}"
"""What an adapter puts in the place of a failure text. It equals any text, since ours are our own
words: class and evidence are the contract (design.md section 12, row 9)."""

Result = JsonValue | _Undefined

OWN_SYSTEM_TEXT: Final = "<ours>"
"""Stands for the size and hash of a system text, which is ours (design.md section 12, row 20)."""
_OF_SYSTEM_TEXT: Final = frozenset({"systemUtf8Bytes", "systemSha256"})


class Adapter(Protocol):
    """An area's module."""

    def run(self, case: JsonObject) -> Result: ...


class Case(msgspec.Struct, frozen=True):
    """One recorded call."""

    area: str
    name: str
    input: JsonObject
    expected: JsonValue | _Undefined

    @property
    def title(self) -> str:
        return f"{self.area}/{self.name}"


class UnknownOp(Exception):
    """An adapter does not know the case's ``op``; always a failure of the run."""


def load(path: Path) -> list[Case]:
    """Return the cases of one area file."""
    raw = cast("list[JsonObject]", json.loads(path.read_text(encoding="utf-8")))
    return [
        Case(
            path.stem,
            str(item["name"]),
            cast("JsonObject", item["input"]),
            _substituted(item["expected"]) if "expected" in item else UNDEFINED,
        )
        for item in raw
    ]


def failure_of(case: Case) -> str | None:
    """Run ``case``; return a short diff, or nothing if its result is the expected one."""
    try:
        adapter = cast("Adapter", import_module(f"tests.conformance.areas.{case.area}"))
    except ImportError as missing:
        return f"unknown area, or its adapter does not load: {missing}"
    try:
        result = adapter.run(case.input)
    except UnknownOp as unknown:
        return f"unknown op {unknown}"
    except Exception as raised:  # every outcome of a call under test is a result
        result = failure(raised)
    return differences_of(case.expected, result)


def differences_of(expected: Result, result: Result) -> str | None:
    """Return the first difference in words, or nothing."""
    return next(_differences(expected, result, "$"), None)


def failure(raised: Exception) -> JsonObject:
    """Return how a raised exception compares: its JavaScript class, and what it says.

    The mapping: ``TypeError`` is TypeError; ``ValueError`` (a number out of range) is RangeError;
    ``json.JSONDecodeError`` is SyntaxError; ``RuntimeError`` and its children, ``MemoryFault``
    among them, are Error. Anything else is a bug of ours and keeps its own name, which no case
    expects.
    """
    name = type(raised).__name__
    if isinstance(raised, TypeError):
        name = "TypeError"
    elif isinstance(raised, json.JSONDecodeError):
        name = "SyntaxError"
    elif isinstance(raised, ValueError) and not isinstance(
        raised, UnicodeError | msgspec.ValidationError
    ):
        name = "RangeError"
    elif isinstance(raised, RuntimeError) and not isinstance(
        raised, RecursionError | NotImplementedError
    ):
        name = "Error"
    return {"error": {"name": name, "message": str(raised)}}


def entry_of(value: JsonValue) -> Entry:
    """Return the entry of a vector."""
    return msgspec.convert(value, Entry)


def entries_of(value: JsonValue) -> list[Entry]:
    """Return the entries of a vector."""
    return [entry_of(item) for item in cast("list[JsonValue]", value)]


def observations_in(value: JsonValue) -> list[Observation]:
    """Return the observations of a vector, those that a fold would leave out as well."""
    items = cast("list[JsonValue]", value)
    return [observation_of(item) or msgspec.convert(item, Observation) for item in items]


def reflections_in(value: JsonValue) -> list[Reflection]:
    """Return the reflections of a vector, those that a fold would leave out as well."""
    items = cast("list[JsonValue]", value)
    return [reflection_of(item) or msgspec.convert(item, Reflection) for item in items]


def secrets_of(value: JsonValue) -> list[str]:
    """Return the secrets of a vector; ``null`` and absent ones are none."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def strings_of(value: JsonValue) -> list[str]:
    """Return a list of strings of a vector."""
    return [str(item) for item in value] if isinstance(value, list) else []


def number_of(value: JsonValue) -> int | float:
    """Return a number of a vector."""
    assert isinstance(value, int | float), f"{value!r} is no number"
    return value


def ids(items: Sequence[Entry | Observation | Reflection]) -> list[JsonValue]:
    """Return the ids, as many results name their items by id alone."""
    return [item.id for item in items]


def _substituted(value: JsonValue) -> JsonValue:
    """Return ``value`` with our own words in the places the vectors leave open."""
    if isinstance(value, str):
        value = value.replace("{{ADVISORY}}", ADVISORY)
        if "{{NOTHING_TO_SUMMARISE}}" in value:
            summary = import_module("ombus_streams.memory.summary")
            value = value.replace("{{NOTHING_TO_SUMMARISE}}", summary.NOTHING_TO_SUMMARISE)
        return value
    if isinstance(value, list):
        return [_substituted(item) for item in value]
    if isinstance(value, dict):
        return {
            key: OWN_SYSTEM_TEXT if item and key in _OF_SYSTEM_TEXT else _substituted(item)
            for key, item in value.items()
        }
    return value


def _differences(expected: Result, actual: Result, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        if _names_error(expected) and _names_error(actual):
            yield from _error_differences(expected, actual, path)
            return
        for key in (*expected, *(key for key in actual if key not in expected)):
            yield from _differences(
                expected.get(key, UNDEFINED) if key in expected else UNDEFINED,
                actual.get(key, UNDEFINED) if key in actual else UNDEFINED,
                f"{path}.{key}",
            )
    elif isinstance(expected, list) and isinstance(actual, list):
        for index, (left, right) in enumerate(zip(expected, actual, strict=False)):
            yield from _differences(left, right, f"{path}[{index}]")
        if len(expected) != len(actual):
            yield (
                f"{path}: expected {len(expected)} items {_short(expected)}, "
                f"got {len(actual)} {_short(actual)}"
            )
    elif actual == ERROR and isinstance(expected, str):
        return
    elif isinstance(expected, bool) != isinstance(actual, bool) or expected != actual:
        if isinstance(expected, str) and isinstance(actual, str):
            yield _text_difference(expected, actual, path)
        else:
            yield f"{path}: expected {_short(expected)}, got {_short(actual)}"


def _names_error(value: Mapping[str, JsonValue]) -> bool:
    error = value.get("error")
    return len(value) == 1 and isinstance(error, dict) and "name" in error


def _error_differences(expected: JsonObject, actual: JsonObject, path: str) -> Iterator[str]:
    wanted = cast("JsonObject", expected["error"])
    got = cast("JsonObject", actual["error"])
    if wanted["name"] != got["name"]:
        yield f"{path}: expected {wanted['name']}, got {got['name']}: {_short(got.get('message'))}"
    message = str(got.get("message", ""))
    for word in strings_of(wanted.get("mentions")):
        if word not in message:
            yield f"{path}: the error does not mention {word!r}: {_short(message)}"


def _text_difference(expected: str, actual: str, path: str) -> str:
    same = next(
        (i for i, pair in enumerate(zip(expected, actual, strict=False)) if pair[0] != pair[1]),
        min(len(expected), len(actual)),
    )
    start = max(0, same - 30)
    return (
        f"{path} differs at character {same}: expected …{_short(expected[start:])}, "
        f"got …{_short(actual[start:])}"
    )


def _short(value: object) -> str:
    text = ascii(value)  # lone surrogates must not break the report
    return text if len(text) <= 160 else text[:157] + "..."
