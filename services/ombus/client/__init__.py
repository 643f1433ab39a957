"""What programs talk to; it knows the wire alone."""

from ombus.client.child import ChildFailure, ChildTask, Done
from ombus.client.child_bus import gateway_bus
from ombus.client.children import serve_children
from ombus.client.client import Client
from ombus.client.errors import OmbusError, Refused, Retryable
from ombus.client.outbox import Appended
from ombus.client.session import Session, message
from ombus.client.tail import Event
from ombus.client.transport import Reply, Stream, Transport

__all__ = [
    "Appended",
    "ChildFailure",
    "ChildTask",
    "Client",
    "Done",
    "Event",
    "OmbusError",
    "Refused",
    "Reply",
    "Retryable",
    "Session",
    "Stream",
    "Transport",
    "gateway_bus",
    "message",
    "serve_children",
]
