"""Whether a broker really serves: one Metadata request, asked over a bare socket.

An open port proves nothing: a broker listens long before its controllers let it serve. Written
out so that starting a broker needs no Kafka client. Source: Kafka's protocol guide, Metadata v1.
"""

import socket
import struct
from datetime import timedelta
from typing import Final

ASK_WITHIN: Final = timedelta(seconds=2)
_METADATA: Final = 3
_VERSION: Final = 1
_CORRELATION: Final = 7
_CLIENT: Final = b"ombus-dev"
_MAX_ANSWER: Final = 1_048_576


def live_brokers(host: str, port: int, within: timedelta = ASK_WITHIN) -> tuple[int, ...]:
    """Return the ids of the brokers that serve, as the one at this address knows them.

    Empty if it does not answer, or not in Kafka's protocol.
    """
    header = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT)) + _CLIENT
    request = header + struct.pack(">i", 0)  # no topics
    try:
        with socket.create_connection((host, port), within.total_seconds()) as connection:
            connection.settimeout(within.total_seconds())
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", _received(connection, 4))
            if not 8 <= length <= _MAX_ANSWER:
                return ()
            return _broker_ids(_received(connection, length))
    except (OSError, struct.error):
        return ()


def _received(connection: socket.socket, n_bytes: int) -> bytes:
    found = b""
    while len(found) < n_bytes:
        part = connection.recv(n_bytes - len(found))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        found += part
    return found


def _broker_ids(answer: bytes) -> tuple[int, ...]:
    correlation, n_brokers = struct.unpack_from(">ii", answer)
    if correlation != _CORRELATION:
        return ()
    ids: list[int] = []
    at = 8
    for _ in range(n_brokers):
        node_id, n_host = struct.unpack_from(">ih", answer, at)
        at += 6 + n_host + 4
        (n_rack,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(n_rack, 0)
        ids.append(node_id)
    return tuple(sorted(ids))
