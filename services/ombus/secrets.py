"""The known secrets of a process: where they are read, and how they stay out of its logs."""

from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

from ombus_schemas.concealment import conceal
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.secrets import parse_secrets


def load_secrets(path: Path) -> tuple[str, ...]:
    """Return the values of a secrets file, as they stand there; ``needles`` gives their forms.

    Raises:
        BadSecret: a value that cannot be looked for, by its line.
        OSError, UnicodeDecodeError: the file cannot be read.
    """
    return parse_secrets(path.expanduser().read_text("utf-8"))


class Concealing:
    """A structlog processor: the last one before the renderer, so that it sees tracebacks."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = tuple(secrets)

    def __call__(
        self, logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        shown = conceal({str(key): _plain(value) for key, value in event.items()}, self._secrets)
        assert isinstance(shown, dict)
        return shown


def _plain(value: object) -> JsonValue:
    """Return ``value`` as JSON would have it; what is none is shown by its text."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            return str(value)
