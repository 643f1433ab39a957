"""What may go wrong between the log and Redis, one thing after another."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.scopes.servers import Pair
from tests.scopes.stand import Stand


class Disturber:
    """Disturbs the stand in a thread until it is closed."""

    def __init__(self, stand: Stand, pair: Pair, seed: int, pause_s: float = 0.4) -> None:
        self._stand, self._pair, self._pause_s = stand, pair, pause_s
        self._chance, self._ending = random.Random(seed), threading.Event()
        self.done: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._kinds: tuple[Callable[[], None], ...] = (
            self.crash_before,
            self.crash_after,
            self.lag,
            self.flush,
            self.restart,
            self.failover,
            self.old_primary,
        )
        self._thread = threading.Thread(target=self._disturb, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def crash_before(self) -> None:
        """Granters end with the log read and Redis not written."""
        for granter in self._stand.granters:
            granter.crash("before")

    def crash_after(self) -> None:
        self._chance.choice(self._stand.granters).crash("after")

    def lag(self) -> None:
        """Nobody folds for a while."""
        for granter in self._stand.granters:
            granter.pause()
        self._wait(0.3)
        for granter in self._stand.granters:
            granter.resume()

    def flush(self) -> None:
        self._pair.servers[self._pair.primary].client().flushall()

    def restart(self) -> None:
        server = self._pair.servers[self._pair.primary]
        server.kill()
        self._wait(0.1)
        server.start()

    def failover(self) -> None:
        """The replica misses what is changed for a while, then it is the primary."""
        self._pair.await_replica()
        self._pair.detach()
        self._wait(0.2)
        self._pair.fail_over()
        self._wait(0.2)
        self._pair.heal()

    def old_primary(self) -> None:
        """Everybody is led to the new primary, back to the old one, and to the new one again."""
        self._pair.await_replica()
        for _ in range(3):
            self._pair.fail_over()
            self._wait(0.15)
        self._pair.heal()

    def _disturb(self) -> None:
        try:
            while not self._ending.wait(self._pause_s):
                # Each once, in an order of their own, then again.
                for kind in self._chance.sample(self._kinds, len(self._kinds)):
                    if self._ending.wait(self._pause_s):
                        return
                    kind()
                    self.done[kind.__name__] += 1
        except BaseException as error:
            self.failure = error

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds * self._chance.uniform(0.5, 1.5))
