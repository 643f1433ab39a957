"""Debug traces in files: one NDJSON file a session, rotated, with secrets concealed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog
from ombus_schemas.concealment import conceal
from ombus_schemas.jsontext import JsonObject

from ombus_streams.runtime.folders import make_private
from ombus_streams.runtime.ports import Clock

MAX_BYTES: Final = 4_194_304
MAX_FILES: Final = 3
"""The one that is written, and older ones as ``.1``, ``.2``: a session's trace is bounded."""

_log = structlog.get_logger("ombus.trace")


class TraceFiles:
    """A ``Trace`` under ``folder``. Tenant and session ids may be any key part, dots included, so
    no name is one of them alone.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        secrets: Sequence[str] = (),
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
    ) -> None:
        self._folder, self._clock, self._secrets = folder, clock, tuple(secrets)
        self._max_bytes, self._max_files = max_bytes, max_files

    def path(self, tenant: str, session: str) -> Path:
        """Return the file a session's trace is written to."""
        return self._folder / f"tenant-{tenant}" / f"session-{session}.ndjson"

    def write(self, tenant: str, session: str, event: JsonObject) -> None:
        at = self._clock.now().isoformat(timespec="milliseconds")
        line = msgspec.json.encode({"at": at, "session": session, **self._concealed(event)})
        path = self.path(tenant, session)
        try:
            make_private(path.parent)
            if path.exists() and path.stat().st_size + len(line) > self._max_bytes:
                self._rotate(path)
            with path.open("ab") as file:
                file.write(line + b"\n")
        except OSError as error:
            _log.warning("trace.lost", session_id=session, failure=error.strerror)

    def _concealed(self, event: JsonObject) -> JsonObject:
        shown = conceal(event, self._secrets)
        return shown if isinstance(shown, dict) else {}

    def _rotate(self, path: Path) -> None:
        """Move every file one number up; the oldest goes."""
        for number in range(self._max_files - 1, 0, -1):
            source = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
            if source.exists():
                source.replace(path.with_name(f"{path.name}.{number}"))
        if self._max_files == 1:
            path.unlink()
