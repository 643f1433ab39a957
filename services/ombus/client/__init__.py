"""What programs talk to; it knows the wire alone."""

from ombus.client.client import Client
from ombus.client.errors import OmbusError, Refused, Retryable
from ombus.client.outbox import Appended
from ombus.client.session import Session, message
from ombus.client.tail import Event
from ombus.client.transport import Reply, Stream, Transport

__all__ = [
    "Appended",
    "Client",
    "Event",
    "OmbusError",
    "Refused",
    "Reply",
    "Retryable",
    "Session",
    "Stream",
    "Transport",
    "message",
]
