"""Conversations by hand, and real transcripts that are never committed."""

import os
from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[2] / ".." / "shared" / "transcripts"


@pytest.fixture
def shared() -> Path:
    """The folder of real transcripts; absent on most machines, required in CI."""
    if not _SHARED.is_dir():
        if os.environ.get("CI"):
            pytest.fail("../shared/transcripts is absent, and CI must have it")
        pytest.skip("../shared/transcripts is absent")
    return _SHARED
