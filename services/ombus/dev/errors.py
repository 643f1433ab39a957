"""Errors of the development servers.

* DevError             names the thing, the fact and the way out
  * ToolMissing        a program this needs is not on the path
  * NotReady           a server that was started does not answer, or has ended
"""


class DevError(RuntimeError):
    """A development server that cannot be had."""

    def __init__(self, what: str, fact: str, way_out: str) -> None:
        super().__init__(f"{what} {fact}: {way_out}")
        self.what, self.fact, self.way_out = what, fact, way_out


class ToolMissing(DevError):
    """A program that a server is built, formatted or run with."""


class NotReady(DevError):
    """A server that ended, or that did not answer its own protocol in time."""
