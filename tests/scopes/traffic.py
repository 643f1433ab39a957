"""Owners that grant and revoke, readers that read, for as many reads as are wanted."""

import random
import threading
import time
from collections.abc import Collection
from typing import Protocol

from tests.scopes.history import Act, History, Verdict

READS_A_CHANGE = 12
"""Reads of a reader at an owner between two changes there, about."""
PATIENCE_S = 5.0


class Stand(Protocol):
    """Where grants are given and taken, and scopes are read; each act is kept in ``history``."""

    history: History
    owners: list[str]
    readers: list[str]

    @property
    def askings(self) -> Collection[tuple[str, str]]:
        """Reader and owner of what may be read."""
        ...

    def change(self, act: Act, owner: str, *principals: str) -> None: ...

    def read(self, reader: str, owner: str) -> object: ...


class Traffic:
    """One thread an owner, one thread a reader."""

    def __init__(self, stand: Stand, n_reads: int, max_seconds: float = 3_600) -> None:
        self._stand, self._n_reads = stand, n_reads
        self._deadline = time.monotonic() + max_seconds
        self._n_done = 0
        self._n_of = {place: 0 for place in stand.askings}
        self._lock = threading.Lock()
        self.failure: BaseException | None = None

    @property
    def n_done(self) -> int:
        return self._n_done

    @property
    def is_over(self) -> bool:
        is_late = time.monotonic() >= self._deadline
        return self._n_done >= self._n_reads or is_late or self.failure is not None

    def run(self) -> Verdict:
        """Return the verdict once the reads are done."""
        stand = self._stand
        threads = [
            *(threading.Thread(target=self._guarded, args=(self._own, o)) for o in stand.owners),
            *(threading.Thread(target=self._guarded, args=(self._look, r)) for r in stand.readers),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        return stand.history.judged()

    def _guarded(self, act: object, name: str) -> None:
        try:
            assert callable(act)
            act(name, random.Random(f"{name}"))
        except BaseException as error:
            self.failure = error

    def _own(self, owner: str, chance: random.Random) -> None:
        """Grant to some, let them read, revoke from most, let them try."""
        stand = self._stand
        while not self.is_over:
            chosen = chance.sample(stand.readers, chance.randint(1, len(stand.readers)))
            stand.change("grant", owner, *chosen)
            self._let_read(owner, chosen, 3)
            for reader in chance.sample(chosen, chance.randint(1, len(chosen))):
                stand.change("revoke", owner, reader)
            self._let_read(owner, chosen, READS_A_CHANGE)

    def _let_read(self, owner: str, readers: list[str], n_reads: int) -> None:
        goal = {reader: self._n_of[reader, owner] + n_reads for reader in readers}
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not self.is_over:
            if all(self._n_of[reader, owner] >= wanted for reader, wanted in goal.items()):
                return
            time.sleep(0.001)

    def _look(self, reader: str, chance: random.Random) -> None:
        stand = self._stand
        while not self.is_over:
            owner = chance.choice(stand.owners)
            stand.read(reader, owner)
            with self._lock:
                self._n_done += 1
                self._n_of[reader, owner] += 1
