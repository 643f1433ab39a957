"""Transcripts for the importer tests: hand-made ones, and real ones that are never committed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from ombus_schemas.jsontext import JsonValue

_SHARED = Path(__file__).parents[2] / ".." / "shared" / "transcripts"

Written = Callable[..., Path]


@pytest.fixture
def shared() -> Path:
    """The folder of real transcripts; absent on most machines, required in CI."""
    if not _SHARED.is_dir():
        if os.environ.get("CI"):
            pytest.fail("../shared/transcripts is absent, and CI must have it")
        pytest.skip("../shared/transcripts is absent")
    return _SHARED


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write rows as a JSONL file: objects as JSON, bytes as they are."""

    def write(*rows: JsonValue | bytes, name: str = "session.jsonl") -> Path:
        path = tmp_path / name
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path

    return write
