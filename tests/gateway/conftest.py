"""One gateway for the tests of a module that leave no traces for each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.serving import Running, running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway without tokens: each test takes a session of its own."""
    with running(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
