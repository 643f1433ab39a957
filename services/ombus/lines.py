"""Log lines of the library inside a program that says nothing about logs.

Standard output is the program's. A host that configures structlog, before or later, decides itself.
"""

import sys
from typing import Any, Final

import structlog

OWN: Final = "ombus."
"""How the names of our loggers begin."""


class Calm(structlog.PrintLogger):
    """Warnings and errors on standard error; the rest nowhere."""

    def debug(self, message: str) -> None:
        """Say nothing."""

    def info(self, message: str) -> None:
        """Say nothing."""


def calm() -> None:
    """Keep our lines off standard output, unless structlog is configured; others' stay there."""
    if not structlog.is_configured():
        structlog.configure(logger_factory=_logger)


def _logger(*names: Any) -> structlog.PrintLogger:
    is_ours = bool(names) and str(names[0]).startswith(OWN)
    return Calm(sys.stderr) if is_ours else structlog.PrintLogger()
