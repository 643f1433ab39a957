"""``python -m tests.scopes.leading PORT TARGET``: a proxy in a process of its own.

Each line on its standard input is another port to lead to; each is answered with a line.
"""

import subprocess
import sys

from ombus.dev.processes import free_ports

from tests.support.proxy import Proxy


class Lead:
    """Everybody who asks ``port`` is led to whoever was named last."""

    def __init__(self, target: int) -> None:
        self.port = free_ports(1)[0]
        command = [sys.executable, "-m", __name__, str(self.port), str(target)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._await()

    def lead_to(self, target: int) -> None:
        """Forward to another port from now on; connections to the old one have ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{target}\n")
        self._await()

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def _await(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the proxy has ended"


def main() -> None:
    port, target = (int(each) for each in sys.argv[1:])
    with Proxy(port, target) as proxy:
        print("ready", flush=True)
        for line in sys.stdin:
            proxy.lead_to(int(line))
            print("done", flush=True)


if __name__ == "__main__":
    main()
