"""Row keys of the supervision state; a session key holds no zero byte, a child id neither."""

from typing import Final

_PARENT: Final = b"p"
_HANDLE: Final = b"h"
_ORDER: Final = b"n"
_OPEN: Final = b"o"
_CHILD: Final = b"c"
_END: Final = b"\0"


def parent(session: bytes) -> bytes:
    """Return the row of one parent session."""
    return _PARENT + session


def handle(session: bytes, delegation: str) -> bytes:
    return _HANDLE + session + _END + delegation.encode()


def order(session: bytes, ordinal: int) -> bytes:
    """Return the row that names the delegation with this ordinal."""
    return orders(session) + ordinal.to_bytes(8, "big")


def orders(session: bytes) -> bytes:
    """Return the prefix of a parent's delegations in the order of their requests."""
    return _ORDER + session + _END


def open_parent(session: bytes) -> bytes:
    """Return the mark of a parent with delegations that are not over."""
    return _OPEN + session


def open_parents() -> bytes:
    return _OPEN


def claimable(child_id: str, session: bytes, delegation: str) -> bytes:
    """Return the mark of a delegation that a child of this name may work for."""
    return claimables(child_id) + session + _END + delegation.encode()


def claimables(child_id: str) -> bytes:
    """Return the prefix of the marks of one child's delegations, over all parents."""
    return _CHILD + child_id.encode() + _END


def split_claimable(key: bytes) -> tuple[bytes, str]:
    """Return parent session and delegation of a ``claimable`` key."""
    _, session, delegation = key.split(_END)
    return session, delegation.decode()
