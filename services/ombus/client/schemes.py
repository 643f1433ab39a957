"""Which transport a URL means. What speaks to brokers is found by name, when it is asked for: this
package knows the wire alone.
"""

from importlib import import_module
from typing import Protocol, cast

from ombus.client.errors import BadRequest
from ombus.client.transport import Transport

_DIRECT = "ombus.direct"


class _Direct(Protocol):
    def open_direct(self, url: str, gateway: Transport | None) -> Transport: ...


def transport_of(url: str, token: str | None, gateway: str | None) -> Transport:
    """Return the transport for ``http://``, ``https://`` or ``kafka://``.

    Raises:
        BadRequest: another URL, or a gateway beside one.
    """
    scheme = url.partition("://")[0]
    match scheme:
        case "http" | "https":
            if gateway is not None:
                raise BadRequest(f"{url} is a gateway already: give gateway with kafka:// alone")
            return _http(url, token)
        case "kafka":
            reads = None if gateway is None else _http(gateway, token)
            return cast("_Direct", import_module(_DIRECT)).open_direct(url, reads)
        case _:
            raise BadRequest(f"{url} is no URL of http, https or kafka")


def _http(url: str, token: str | None) -> Transport:
    from ombus.client.http import HttpTransport

    return HttpTransport(url, token)
