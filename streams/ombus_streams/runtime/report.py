"""What a run says of itself, gathered while it goes on and told once, on its canonical line."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Fact = str | int | float | bool | dict[str, int] | None
_current: Final[ContextVar[dict[str, Fact] | None]] = ContextVar("ombus_run_report", default=None)


@contextmanager
def reporting() -> Iterator[dict[str, Fact]]:
    """Lend the report of a run that begins here; whatever it awaits adds to the same one."""
    facts: dict[str, Fact] = {}
    token = _current.set(facts)
    try:
        yield facts
    finally:
        _current.reset(token)


def report(**facts: Fact) -> None:
    """Add to the report of the run under way, if somebody keeps one: ids and numbers, no text."""
    kept = _current.get()
    if kept is not None:
        kept.update(facts)
