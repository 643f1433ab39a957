"""Writes the contract for readers in other languages: JSON Schema, AsyncAPI, OpenAPI, patterns.

``python -m ombus_schemas.publish`` writes ``schemas/published/``; with ``--check`` it says whether
that folder holds what the code says and exits 1 if not.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ombus_schemas import asyncapi, jsonschemas, openapi, patterns
from ombus_schemas.jsontext import JsonObject

FOLDER: Final = Path(__file__).parents[1] / "published"
ENTRY_FILE: Final = "entry.schema.json"
SUPERVISION_FILE: Final = "supervision.schema.json"
ASYNCAPI_FILE: Final = "asyncapi.json"
OPENAPI_FILE: Final = "openapi.json"
PATTERNS_FILE: Final = "secret-patterns.json"


def documents() -> dict[str, str]:
    """Return the text of every published file by its name; the same text on every run."""
    return {
        ENTRY_FILE: _text({"$id": ENTRY_FILE, **jsonschemas.entry_schema()}),
        SUPERVISION_FILE: _text({"$id": SUPERVISION_FILE, **jsonschemas.supervision_schema()}),
        ASYNCAPI_FILE: _text(asyncapi.document(ENTRY_FILE, SUPERVISION_FILE)),
        OPENAPI_FILE: _text(openapi.document()),
        PATTERNS_FILE: _text(patterns.document()),
    }


def write(folder: Path) -> None:
    """Write every document; files of other names are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (folder / name).write_bytes(text.encode())


def stale(folder: Path) -> tuple[str, ...]:
    """Return the names of the files that do not hold what the code says."""
    return tuple(
        name
        for name, text in documents().items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files; return 1 if ``--check`` finds one that is not up to date."""
    parser = argparse.ArgumentParser(prog="python -m ombus_schemas.publish")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--to", type=Path, default=FOLDER, help="another folder")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.to)
        return 0
    names = stale(options.to)
    for name in names:
        print(f"{name} is not what the code says: run python -m ombus_schemas.publish")
    return 1 if names else 0


def _text(document: JsonObject) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
