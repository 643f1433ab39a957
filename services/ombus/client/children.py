"""The loop of a child process: claim, keep the lease, work, say how it ended.

A lease that cannot be kept is lost here before it is lost there: when no heartbeat was acknowledged
for as long as the lease lasts, counted from when it was sent, the work is cancelled, since another
child may have taken over. A cancelled, timed out or lost delegation cancels the function.
"""

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from ombus_schemas.bodies import MAX_COUNT

from ombus.client.child import (
    MAX_RETRY_S,
    RETRY_S,
    ChildBus,
    ChildFailure,
    ChildTask,
    Done,
    Offer,
    Standing,
    Work,
    again,
)

DEFAULT_LEASE_MS: Final = 15_000
BEATS_PER_LEASE: Final = 3
GRACE_S: Final = 15.0
"""How long a function may take to end once it is cancelled."""

Result = TypeVar("Result")


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How one claim of this process ended."""

    offer: Offer
    standing: Standing
    reason: str | None = None


async def serve_children(
    bus: ChildBus,
    child_id: str,
    work: Work,
    *,
    slots: int = 1,
    lease_ms: int = DEFAULT_LEASE_MS,
    max_tasks: int | None = None,
    stop: asyncio.Event | None = None,
    watch: Callable[[Offer | Ended], None] = lambda _: None,
) -> None:
    """Work on delegations to ``child_id`` until ``stop`` is set or ``max_tasks`` have ended here.

    ``slots``: at once. A stop cancels what runs without an end; its lease runs out, so another
    child takes over or the delegation fails, as its parent asked. ``watch`` is told what was
    claimed and how it ended.
    """
    stop = stop or asyncio.Event()
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
    running: dict[asyncio.Task[Ended], Offer] = {}
    n_begun = n_ended = 0
    pause = RETRY_S
    try:
        while not stop.is_set() and (max_tasks is None or n_ended < max_tasks):
            n_free = slots - len(running)
            if max_tasks is not None:
                n_free = min(n_free, max_tasks - n_begun)
            if n_free > 0:
                try:
                    offers = await _unless(stop, bus.offers(child_id))
                    pause = RETRY_S
                except bus.unreachable:
                    offers = []
                    await _unless(stop, asyncio.sleep(pause))
                    pause = min(2 * pause, MAX_RETRY_S)
                mine = {offer.delegation_id for offer in running.values()}
                n_before = n_begun
                for offer in offers or ():
                    is_new = n_free > 0 and offer.delegation_id not in mine
                    if is_new and await _claimed(bus, offer, holder, lease_ms):
                        claim = Claim(bus, offer, holder, lease_ms, work)
                        running[asyncio.create_task(claim.run())] = offer
                        watch(offer)
                        n_begun += 1
                        n_free -= 1
                if offers and n_begun == n_before:
                    # Others were faster, or clocks disagree about a lease.
                    await _unless(stop, asyncio.sleep(RETRY_S))
            elif running:
                await _unless(stop, asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))
            for each in [each for each in running if each.done()]:
                del running[each]
                n_ended += 1
                watch(each.result())
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Claim:
    """One delegation under a lease that is held."""

    def __init__(
        self,
        bus: ChildBus,
        offer: Offer,
        holder: str,
        lease_ms: int,
        work: Work,
    ) -> None:
        self._bus, self._offer, self._holder = bus, offer, holder
        self._lease_s, self._work = lease_ms / 1_000, work
        self._task = ChildTask(bus, offer)

    async def run(self) -> Ended:
        """Run the work to its end, or until the lease is gone."""
        working = asyncio.create_task(self._worked())
        keeping = asyncio.create_task(self._kept())
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return await self._said(working)
            working.cancel()
            await asyncio.wait({working}, timeout=GRACE_S)
            standing = keeping.result()
            if standing != "lost":
                # The session may be closed for good, and nobody waits for this.
                with suppress(TimeoutError, ChildFailure):
                    said = self._task.event("agent_finished", status=standing)
                    await asyncio.wait_for(said, GRACE_S)
            return Ended(offer=self._offer, standing=standing)
        finally:
            for each in (working, keeping):
                each.cancel()
            # A function that will not end is left behind: it holds no lease.
            await asyncio.wait({working, keeping}, timeout=GRACE_S)

    async def _worked(self) -> Done:
        await self._task.open()
        answer = await self._work(self._task)
        done = answer if isinstance(answer, Done) else Done(output=answer)
        return msgspec.structs.replace(
            done,
            output=self._task.last_text if done.output is None else done.output,
            total_tokens=_count(done.total_tokens or self._task.total_tokens),
        )

    async def _said(self, working: "asyncio.Task[Done]") -> Ended:
        """Say how the work ended, for as long as the lease may be held."""
        try:
            done, failure = working.result(), None
        except ChildFailure as error:
            done, failure = None, error
        except Exception as error:
            # The function is a host's: whatever it raises is the child's failure, said by its kind.
            done, failure = None, ChildFailure(f"{type(error).__name__}: {error}")
        if failure is not None:
            failure.total_tokens = _count(failure.total_tokens or self._task.total_tokens)
            exit_code = {} if failure.exit_code is None else {"exitCode": failure.exit_code}
            await self._last("failed", **exit_code)

            async def say() -> Standing:
                return await self._bus.fail(self._offer, self._holder, failure)
        else:
            assert done is not None
            await self._last(done.status)

            async def say() -> Standing:
                return await self._bus.finish(self._offer, self._holder, done)

        standing = await again(self._bus, say)
        return Ended(
            offer=self._offer, standing=standing, reason=failure.reason if failure else None
        )

    async def _last(self, status: str, **members: int) -> None:
        with suppress(ChildFailure):
            await self._task.event("agent_finished", status=status, **members)

    async def _kept(self) -> Standing:
        """Return the standing once the lease is not held any more."""
        loop = asyncio.get_running_loop()
        n_beats, kept_at = 0, loop.time()
        every = self._lease_s / BEATS_PER_LEASE
        beat_at = kept_at + every
        while True:
            await asyncio.sleep(min(self._bus.pause, max(0.0, beat_at - loop.time())))
            sent_at = loop.time()
            left = kept_at + self._lease_s - sent_at
            if left <= 0:
                return "lost"
            try:
                if sent_at >= beat_at:
                    n_beats += 1
                    beat = self._bus.beat(self._offer, self._holder, n_beats)
                    standing = await asyncio.wait_for(beat, left)
                    kept_at, beat_at = sent_at, sent_at + every
                else:
                    look = self._bus.standing(self._offer, self._holder)
                    standing = await asyncio.wait_for(look, left)
            except TimeoutError:
                continue
            except self._bus.unreachable:
                continue
            if standing != "held":
                return standing


async def _claimed(
    bus: ChildBus,
    offer: Offer,
    holder: str,
    lease_ms: int,
) -> bool:
    try:
        return await bus.claim(offer, holder, lease_ms)
    except bus.unreachable:
        return False


def _count(total: int) -> int:
    """Return a sum of what entries say as it can be told: they may say anything."""
    return min(max(total, 0), MAX_COUNT)


async def _unless(stop: asyncio.Event, waited: Awaitable[Result]) -> Result | None:
    """Return what is awaited, or ``None`` once ``stop`` is set."""
    waiting = asyncio.ensure_future(waited)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not waiting.done():
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return None
    return waiting.result()
