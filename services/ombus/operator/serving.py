"""The folding process: it owns a data folder until it is told to stop."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from ombus.operator.errors import STOP_IT, Busy
from ombus.settings import ProcessSettings
from ombus.wiring import AlreadyOwned, Engine, open_engine

RETRY_S: Final = 0.1
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Beside = Callable[[asyncio.Event], Awaitable[None]]
"""Work that goes on until the event is set."""

_log = structlog.get_logger("ombus.up")


def own(
    settings: ProcessSettings, wait_seconds: float, command: str, way_out: str = STOP_IT
) -> Engine:
    """Return the engine as its owner; a command that folds for itself is waited for.

    ``command`` is the one that was run, ``way_out`` what its caller can do about a busy folder.

    Raises:
        Busy: somebody else still owns the folder after ``wait_seconds``.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return open_engine(settings, owns=True)
        except AlreadyOwned as error:
            if time.monotonic() >= deadline:
                raise Busy(f"`{command}`", settings.folder, error.owner, way_out) from error
        time.sleep(RETRY_S)


async def serve(engine: Engine, ready: Callable[[], None], beside: Sequence[Beside] = ()) -> None:
    """Fold and run workers until SIGINT or SIGTERM; runs under way are given up, no fold is.

    ``ready`` is called once both signals end it in order. What runs ``beside`` ends with it; an
    error there ends it, too.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    _log.info("owner.started", folder=str(engine.folder), lag_records=engine.lag())
    tasks = [asyncio.ensure_future(each(stop)) for each in beside]
    try:
        ready()
        working = asyncio.create_task(engine.run(stop))
        done, _ = await asyncio.wait({working, *tasks}, return_when=asyncio.FIRST_EXCEPTION)
        stop.set()
        for each in (*done, working):
            await each
    finally:
        stop.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        _log.info("owner.stopped", folder=str(engine.folder), lag_records=engine.lag())
