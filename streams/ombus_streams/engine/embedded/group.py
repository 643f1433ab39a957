"""Group commit: what many threads hand in at once is written by one, in one transaction.

The first item is written at once; all that arrives while its disk sync runs waits for the next
transaction together. So a lone writer pays one sync per append, and a hundred pay one between
them, without a delay that somebody would have to tune.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from ombus_streams.runtime.errors import Closed

MAX_WAITING: Final = 1_024
"""Items in the queue; a further caller waits until there is room."""
MAX_GROUP: Final = 4_096
"""Weight of one transaction, above which the rest waits for the next."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupCommit(Generic[Item, Result]):
    """Owns the writer thread, which starts with the first item and ends with ``close``.

    ``commit`` runs in that thread alone, gets the items in the order they came and returns their
    results in the same order. What it raises, every item of its group gets.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[Sequence[Item]], Sequence[Result]],
        weight: Callable[[Item], int],
    ) -> None:
        self._name, self._commit, self._weight = name, commit, weight
        self._waiting: deque[tuple[Item, Future[Result]]] = deque()
        self._changed = threading.Condition()
        self._n_writing = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def n_pending(self) -> int:
        """Items that were taken in and have no result yet."""
        with self._changed:
            return len(self._waiting) + self._n_writing

    def submit(self, item: Item) -> Result:
        """Return the item's result once its transaction is committed.

        Raises:
            Closed: ``close`` was called before the item was taken in.
        """
        outcome: Future[Result] = Future()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._waiting) < MAX_WAITING)
            if self._closed:
                raise Closed(self._name)
            self._waiting.append((item, outcome))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return outcome.result()

    def close(self) -> None:
        """Write what was taken in, then end the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            try:
                results = self._commit([item for item, _ in group])
            except Exception as error:
                for _, outcome in group:
                    outcome.set_exception(error)
            else:
                for (_, outcome), result in zip(group, results, strict=True):
                    outcome.set_result(result)

    def _next_group(self) -> list[tuple[Item, Future[Result]]]:
        group: list[tuple[Item, Future[Result]]] = []
        weight = 0
        with self._changed:
            self._n_writing = 0
            self._changed.wait_for(lambda: self._closed or bool(self._waiting))
            while self._waiting:
                weight += self._weight(self._waiting[0][0])
                if group and weight > MAX_GROUP:
                    break
                group.append(self._waiting.popleft())
            self._n_writing = len(group)
            self._changed.notify_all()
        return group
