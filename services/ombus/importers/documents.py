"""A JSON document as rows: the elements of its lists, and its small other values as facts."""

from typing import IO, Final

import msgspec
from ombus_schemas.jsontext import JsonObject

from ombus.importers.elements import elements
from ombus.importers.lines import MAX_ROW_BYTES, BadRow, Row, decode

_MAX_FACT_BYTES: Final = 65_536


class Document(msgspec.Struct, frozen=True):
    """Where the elements of each list are (the document itself, if a list, has the empty name)."""

    facts: JsonObject
    lists: dict[str, list[Row]]


def read_document(file: IO[bytes], start: int, end: int) -> Document:
    """Return the document at ``start`` to ``end``; of its elements only the places are kept."""
    facts: JsonObject = {}
    lists: dict[str, list[Row]] = {}
    for element in elements(file, start, end):
        if element.index >= 0:
            size = element.size if element.size <= MAX_ROW_BYTES else -1
            found = lists.setdefault(element.key, [])
            found.append(Row(len(found) + 1, element.offset, size, element.complete))
        elif element.complete and element.size <= _MAX_FACT_BYTES:
            file.seek(element.offset)
            try:
                facts[element.key] = decode(file.read(element.size))
            except BadRow:
                continue
    return Document(facts, lists)


def small(facts: JsonObject, *names: str) -> JsonObject:
    """Return the named facts that are there."""
    return {name: facts[name] for name in names if facts.get(name) is not None}
