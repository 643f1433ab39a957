"""What Faust, mode and aiokafka say on their own behalf, as events of our log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

LIBRARIES: Final = ("faust", "mode", "aiokafka", "kafka")

_log = structlog.get_logger("ombus.kafka")


class _Forwarding(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say = _log.error if record.levelno >= logging.ERROR else _log.warning
        failure = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        say("library.said", library=record.name, text=record.getMessage(), failure=failure)


@contextmanager
def forwarded(level: int = logging.WARNING) -> Iterator[None]:
    """Let the libraries' records at or above ``level`` be events while the body runs."""
    handler = _Forwarding(level)
    loggers = [logging.getLogger(name) for name in LIBRARIES]
    before = [(each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.setLevel(level)
        each.propagate = False
    try:
        yield
    finally:
        for each, (old_level, propagates) in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.setLevel(old_level)
            each.propagate = propagates
