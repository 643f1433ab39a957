"""A TCP proxy on loopback whose connections a test can cut."""

import socket
import threading
from contextlib import suppress
from typing import Final, Self

HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536


class Proxy:
    """Forwards ``port`` to ``target`` while it is open."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self._target = port, target
        self._listening = socket.create_server((HOST, port))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.n_connections = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake the thread that waits for a connection.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        self.cut()

    def cut(self) -> None:
        """End every connection there is; new ones are taken."""
        with self._lock:
            cut, self._sockets = self._sockets, []
        for each in cut:
            with suppress(OSError):  # It has ended by itself.
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def lead_to(self, target: int) -> None:
        """Forward to another port from now on; connections to the old one end."""
        self._target = target
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((HOST, self._target), 5)
            except OSError:  # Nobody listens there now; that is what the caller shall see.
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._sockets += [near, far]
                self.n_connections += 1
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_forward, args=(source, target), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    try:
        while part := source.recv(_CHUNK):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
