"""Which names mean this machine itself: for sockets, ``Host`` headers and pages in a browser."""

from ipaddress import ip_address


def is_loopback(named: str) -> bool:
    """Say whether a ``Host`` header, or an address to listen on, names this machine itself."""
    name = named.rpartition("]")[0].lstrip("[") if named.startswith("[") else named.split(":")[0]
    if name == "localhost":
        return True
    try:
        return ip_address(name if named.count(":") < 2 or "[" in named else named).is_loopback
    except ValueError:
        return False


def is_ours(origin: str) -> bool:
    """Say whether a page that calls was served by this machine itself."""
    return is_loopback(origin.partition("://")[2])
