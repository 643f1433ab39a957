"""What an engine's host says when something under it has failed."""

import asyncio
from pathlib import Path

from ombus.gateway.limits import Limits
from ombus.gateway.serving import Listening, open_gateway
from ombus.loop_thread import LoopThread
from ombus.settings import load_settings


def test_a_host_that_was_told_of_a_failure_is_not_ready_and_keeps_the_first(
    tmp_path: Path,
) -> None:
    gateway = open_gateway(load_settings({"data": str(tmp_path)}, {}, []), Listening(), Limits())
    host, first = gateway.host, OSError("the log cannot be read")
    assert host.is_ready

    host.fail(first)
    host.fail(OSError("later"))

    assert (host.is_ready, host.loop.failure) == (False, first)
    asyncio.run(gateway.close())


def test_work_that_fails_after_it_was_given_up_does_not_hide_why() -> None:
    async def work(stop: asyncio.Event) -> None:
        await stop.wait()
        raise OSError("later")

    loop, first = LoopThread("test", work), OSError("the log cannot be read")
    loop.start()

    loop.fail(first)
    loop.stop()

    assert loop.failure is first
