"""One SDK client for each event loop: connections belong to the loop that opened them."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Client = TypeVar("Client")


class Clients(Generic[Client]):
    """Opens a client on first use in a loop; a loop that is gone takes its client with it."""

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self._open = open_client
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()

    def get(self) -> Client:
        loop = asyncio.get_running_loop()
        found = self._by_loop.get(loop)
        if found is None:
            found = self._by_loop[loop] = self._open()
        return found
