"""Settings every test shares, and the brokers some of them need."""

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support.brokers import (
    kafka,
    pytest_addoption,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    redis,
)

__all__ = [
    "kafka",
    "pytest_addoption",
    "pytest_configure",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "redis",
]

# Two busy cores draw slowly now and then; a property fails for what it finds, never for its time.
# In CI the examples are the same each time: a red run can be run again.
settings.register_profile(
    "ombus",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("ombus")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command that runs inside of a test lets logs go to an output that is closed afterwards."""
    yield
    structlog.reset_defaults()
