"""A table of a settings file, read as the struct it is to be.

What does not fit is told by its place, what is taken there and what comes nearest. A value is never
repeated: it may be a secret.
"""

import typing
from collections.abc import Collection
from difflib import get_close_matches
from typing import TypeVar

import msgspec
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)
from ombus_schemas.jsontext import JsonValue

Struct = TypeVar("Struct", bound=msgspec.Struct)


class BadTable(ValueError):
    """A setting of a table makes no sense; ``place`` is its path from the table's name on."""

    def __init__(self, place: str, fact: str) -> None:
        super().__init__(f"{place} {fact}")
        self.place, self.fact = place, fact


def read_table(
    kind: type[Struct], said: JsonValue, name: str = "", *, is_text: bool = False
) -> Struct:
    """Return what the table called ``name`` says; without a name it is a whole file of tables.

    ``is_text``: numbers may be written as text.

    Raises:
        BadTable: as it says.
    """
    _check(kind, said, name, not is_text)
    return msgspec.convert(said, kind, strict=not is_text)


def unknown(name: str, known: Collection[str]) -> str:
    """Return the fact that ``name`` is not ``known``, with what comes nearest."""
    return f"is no setting: {perhaps(name, known)}there are {', '.join(known)}"


def perhaps(name: str, known: Collection[str]) -> str:
    """Return the hint to what comes nearest, or no text: a way out follows it."""
    near = get_close_matches(name, known, n=1)
    return f"perhaps {near[0]}; " if near else ""


def misfit(kind: object) -> str:
    """Return the fact that a value is no ``kind``."""
    return f"does not fit: it takes {taken_by(kind)}"


def taken_by(kind: object) -> str:
    """Return what a setting of that type takes, in words."""
    return _taken(type_info(kind))


def _check(kind: object, said: JsonValue, place: str, strict: bool) -> None:
    info = type_info(kind)
    if isinstance(info, StructType):
        _check_fields(info.cls, _table(said, place), place, strict)
    elif isinstance(info, DictType) and isinstance(info.value_type, StructType):
        names, each = typing.get_args(kind)
        for key, value in _table(said, place).items():
            allowed = typing.get_args(names)
            if allowed and key not in allowed:
                raise BadTable(_below(place, key), unknown(key, allowed))
            _check(each, value, _below(place, key), strict)
        return
    try:
        msgspec.convert(said, kind, strict=strict)
    except msgspec.ValidationError as error:
        # A struct whose fields fit one by one refuses what they say together, in words of its own.
        own = error.__cause__
        raise BadTable(place, str(own) if own is not None else misfit(kind)) from error


def _check_fields(
    kind: type[msgspec.Struct], said: dict[str, JsonValue], place: str, strict: bool
) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, value in said.items():
        if key not in fields:
            raise BadTable(_below(place, key), unknown(key, fields))
        _check(fields[key].type, value, _below(place, key), strict)
    for key, field in fields.items():
        if field.required and key not in said:
            raise BadTable(
                _below(place, key), f"is not set: it takes {_taken(type_info(field.type))}"
            )


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _table(said: JsonValue, place: str) -> dict[str, JsonValue]:
    if not isinstance(said, dict):
        raise BadTable(place, "is no table")
    return said


def _taken(info: Type) -> str:
    match info:
        case BoolType():
            return "true or false"
        case IntType():
            return "a whole number"
        case FloatType():
            return "a number"
        case StrType():
            return "text"
        case LiteralType():
            return f"one of {', '.join(map(str, info.values))}"
        case VarTupleType():
            return f"a list, each {_taken(info.item_type)}"
        case DictType(value_type=UnionType() | AnyType()):
            return "a table"
        case DictType():
            return f"a table, each value {_taken(info.value_type)}"
        case UnionType():
            types = [each for each in info.types if not isinstance(each, NoneType)]
            if any(isinstance(each, FloatType) for each in types):
                types = [each for each in types if not isinstance(each, IntType)]
            return " or ".join(map(_taken, types))
        case _:
            return "another value"
