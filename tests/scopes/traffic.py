"""Owners that grant and revoke, readers that read, for as many reads as are wanted.

One thread an owner, one thread a reader. Readers sit in processes of their own: what one of them
costs holds up no other, and nothing but the log and the store tells them of a change.
"""

import math
import multiprocessing
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection as Pipe
from typing import Protocol

import msgspec
import structlog

from tests.scopes.history import Act, History, Read, Verdict

READS_A_CHANGE = 12
"""Reads of a reader at an owner between two changes there, about."""
PATIENCE_S = 5.0
_POLL_S = 0.005
_TOLD_S = 0.25
"""How often a process hands over what it has read."""
_JUDGED_S = 0.5
_ENDING_S = 60.0

Reading = Callable[[str, str], Read]
"""Reads as a reader what an owner shares."""


class Seat(Protocol):
    """Where readers of one process sit; it is sent there."""

    def open(self) -> AbstractContextManager[Reading]: ...


class Stand(Protocol):
    """Where grants are given and taken; each act is kept in ``history``."""

    history: History
    owners: list[str]
    readers: list[str]

    @property
    def seats(self) -> Sequence[Seat]: ...

    def change(self, act: Act, owner: str, *principals: str) -> None: ...


class Traffic:
    """Goes on until there are so many reads, or one is served that may not be, or time is up."""

    def __init__(self, stand: Stand, n_reads: int, max_seconds: float = math.inf) -> None:
        self._stand, self._n_reads, self._max_seconds = stand, n_reads, max_seconds
        self._n_of: dict[tuple[str, str], int] = {
            (reader, owner): n
            for n, (reader, owner) in enumerate((r, o) for r in stand.readers for o in stand.owners)
        }
        spawning = multiprocessing.get_context("spawn")
        self._counts = spawning.RawArray("q", len(self._n_of))
        self._is_ending = spawning.RawValue("b", 0)
        self._spawning = spawning
        self.failure: BaseException | None = None

    @property
    def n_done(self) -> int:
        return sum(self._counts)

    @property
    def is_over(self) -> bool:
        return bool(self._is_ending.value)

    def run(self, told: Callable[[Verdict], None] = lambda _: None) -> Verdict:
        """Return the verdict once the reads are done; ``told`` hears it on the way."""
        history, stand = self._stand.history, self._stand
        threads = [self._thread(self._seated, n, seat) for n, seat in enumerate(stand.seats)]
        try:
            while not self.n_done and self.failure is None:  # New processes take their time.
                time.sleep(_POLL_S)
            threads += [self._thread(self._own, owner) for owner in stand.owners]
            self._watch(told)
        finally:
            self._is_ending.value = 1
            for thread in threads:
                thread.join()
        if self.failure is not None:
            raise self.failure
        return history.judged()

    def _watch(self, told: Callable[[Verdict], None]) -> None:
        judged = time.monotonic()
        deadline = judged + self._max_seconds
        while self.n_done < self._n_reads and self.failure is None:
            now = time.monotonic()
            if now >= deadline:
                return
            if now - judged >= _JUDGED_S:
                judged, verdict = now, self._stand.history.judged()
                if verdict.served:
                    return
                told(verdict)
            time.sleep(_POLL_S)

    def _thread(self, act: Callable[..., None], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                act(*arguments)
            except BaseException as error:
                self.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _seated(self, number: int, seat: Seat) -> None:
        """Keep what is read on one seat."""
        stand = self._stand
        readers = stand.readers[number :: len(stand.seats)]
        near, far = self._spawning.Pipe(duplex=False)
        arguments = (seat, readers, stand.owners, self._n_of, self._counts, self._is_ending, far)
        process = self._spawning.Process(target=_sit, args=arguments, daemon=True)
        process.start()
        far.close()
        decoder = msgspec.msgpack.Decoder(list[Read])
        try:
            while True:
                stand.history.read(*decoder.decode(near.recv_bytes()))
        except EOFError:
            process.join(_ENDING_S)
        assert process.exitcode == 0, f"the readers of a seat ended with {process.exitcode}"

    def _own(self, owner: str) -> None:
        """Grant to some, let them read, revoke from most, let them try."""
        stand, chance = self._stand, random.Random(owner)
        while not self.is_over:
            chosen = chance.sample(stand.readers, chance.randint(1, len(stand.readers)))
            stand.change("grant", owner, *chosen)
            self._let_read(owner, chosen, 3)
            n_revoked = chance.randint((len(chosen) + 1) // 2, len(chosen))
            for reader in chance.sample(chosen, n_revoked):
                stand.change("revoke", owner, reader)
            self._let_read(owner, chosen, READS_A_CHANGE)

    def _let_read(self, owner: str, readers: list[str], n_reads: int) -> None:
        places = [self._n_of[reader, owner] for reader in readers]
        goal = {place: self._counts[place] + n_reads for place in places}
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not self.is_over:
            if all(self._counts[place] >= wanted for place, wanted in goal.items()):
                return
            time.sleep(_POLL_S)


class _Shared(Protocol):
    value: int


def _sit(
    seat: Seat,
    readers: Sequence[str],
    owners: Sequence[str],
    n_of: Mapping[tuple[str, str], int],
    counts: list[int],
    is_ending: _Shared,
    pipe: Pipe,
) -> None:
    """Read until it is over, in a process of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    kept: deque[Read] = deque()
    failures: list[BaseException] = []

    def look(reading: Reading, reader: str) -> None:
        chance = random.Random(reader)
        try:
            while not is_ending.value:
                owner = chance.choice(owners)
                kept.append(reading(reader, owner))
                counts[n_of[reader, owner]] += 1
        except BaseException as error:
            failures.append(error)

    with seat.open() as reading:
        threads = [threading.Thread(target=look, args=(reading, each)) for each in readers]
        for thread in threads:
            thread.start()
        is_last = False
        while not is_last:
            time.sleep(_TOLD_S)
            is_last = not any(thread.is_alive() for thread in threads)
            pipe.send_bytes(msgspec.msgpack.encode([kept.popleft() for _ in range(len(kept))]))
    pipe.close()
    if failures:
        raise failures[0]
