"""How delegations are put together over a data folder: the log, the host's words, its hooks."""

import asyncio
from functools import partial

from ombus_schemas.concealment import conceal_text
from ombus_schemas.redaction import redact_text
from ombus_streams.engine.embedded.supervision import Supervision, is_there, run_when_there
from ombus_streams.runtime.hooks import HostHooks
from ombus_streams.runtime.ports import Clock

from ombus.settings import ProcessSettings
from ombus.wiring import SystemClock

__all__ = ["Supervision", "concealed", "has_delegations", "open_supervision", "supervise"]


def open_supervision(settings: ProcessSettings, clock: Clock | None = None) -> Supervision:
    """Return the delegations of the data folder, which are made if there are none.

    Raises:
        NoSuchCallback: a hook's name leads to no function.
        StorageError, TerminalError: see their way out.
    """
    said = settings.supervision
    return Supervision(
        settings.folder,
        clock or SystemClock(),
        said.policy(),
        HostHooks(said.before, said.after, said.hook_seconds),
        partial(concealed, settings),
        secrets=settings.secrets,
        partitions=settings.partitions,
    )


def concealed(settings: ProcessSettings, text: str) -> str:
    """Return ``text`` as it may stand on the log: without known secrets and what looks like one."""
    if settings.redact_patterns:
        return conceal_text(text, settings.secrets)
    return redact_text(text, settings.secrets)


def has_delegations(settings: ProcessSettings) -> bool:
    """Say whether anything was ever delegated in the data folder."""
    return is_there(settings.folder)


async def supervise(settings: ProcessSettings, stop: asyncio.Event) -> None:
    """Answer, expire and end delegations of the folder until ``stop`` is set."""
    await run_when_there(settings.folder, stop, partial(open_supervision, settings))
