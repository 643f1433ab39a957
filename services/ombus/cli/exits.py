"""How commands end: 0 fine, 1 a finding, 2 misused, 3 unreachable; errors are one line, typed.

A finding is an answer somebody must look at: verify found differences, a flush failed, a compaction
was refused, nothing has the recalled id, a line was not taken.
"""

from typing import Final

from ombus_schemas.errors import ContractError
from ombus_streams.memory.errors import MemoryFault
from ombus_streams.runtime.errors import RuntimeFault

from ombus.operator.errors import Misaddressed, OperatorError
from ombus.settings import BadSetting

FOUND: Final = 1
MISUSED: Final = 2
UNREACHABLE: Final = 3

KNOWN: Final = (OperatorError, BadSetting, ContractError, MemoryFault, RuntimeFault, OSError)
"""Errors that are answers; anything else is a bug of ours and shows where it is."""


def code_of(error: Exception) -> int:
    """Return the exit code for a known error."""
    match error:
        case Misaddressed() | BadSetting() | ContractError() | MemoryFault():
            return MISUSED
        case FileNotFoundError() | IsADirectoryError() | NotADirectoryError():
            return MISUSED
        case _:
            return UNREACHABLE


def line_of(error: Exception) -> str:
    """Return the one line that says what is the matter."""
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        text = f"{named}{error.strerror or error}"
    else:
        text = " ".join(str(error).split())
    code = getattr(error, "code", None)
    if isinstance(code, str) and isinstance(error, OperatorError):
        text = f"{text} [{code}]"
    return f"ombus: {text}"
