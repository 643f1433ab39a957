"""How to reach the brokers: addresses, TLS, SASL; the same for producers, readers and admins."""

import ssl
from typing import Final, Literal, TypedDict

import msgspec

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class BadConnection(ValueError):
    """Connection settings that contradict each other."""


class Connection(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where the brokers are and who asks. Names and values are those every Kafka client uses."""

    bootstrap_servers: str
    """``host:port``, separated by commas."""
    client_id: str = "ombus"
    """Shown in the broker's metrics and quotas."""
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: str | None = None
    """Never printed."""
    ssl_cafile: str | None = None
    """Who may sign a broker's certificate; the system's authorities if it is not given."""
    ssl_certfile: str | None = None
    """This client's own certificate, where brokers ask for one."""
    ssl_keyfile: str | None = None

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise BadConnection("bootstrap-servers is empty: name host:port of a broker")
        is_sasl = self.security_protocol.startswith("SASL")
        if is_sasl and not (self.sasl_username and self.sasl_password):
            raise BadConnection(
                f"{self.security_protocol} needs sasl-username and sasl-password: set both"
            )
        if bool(self.ssl_certfile) != bool(self.ssl_keyfile):
            raise BadConnection("ssl-certfile and ssl-keyfile go together: set both or none")

    def __repr__(self) -> str:
        user = f", user {self.sasl_username}" if self.sasl_username else ""
        return f"Connection({self.bootstrap_servers}, {self.security_protocol}{user})"


class ClientOptions(TypedDict):
    """What every client of aiokafka takes."""

    bootstrap_servers: str
    client_id: str
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    request_timeout_ms: int


REQUEST_TIMEOUT_MS: Final = 10_000
"""How long one request may take before the client asks another broker."""


def client_options(connection: Connection) -> ClientOptions:
    """Return the arguments of a client; certificates are read here."""
    return ClientOptions(
        bootstrap_servers=connection.bootstrap_servers,
        client_id=connection.client_id,
        security_protocol=connection.security_protocol,
        ssl_context=_ssl_context(connection),
        sasl_mechanism=connection.sasl_mechanism,
        sasl_plain_username=connection.sasl_username,
        sasl_plain_password=connection.sasl_password,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )


def _ssl_context(connection: Connection) -> ssl.SSLContext | None:
    if not connection.security_protocol.endswith("SSL"):
        return None
    # Here, so that settings can be checked without the extra.
    from aiokafka.helpers import create_ssl_context

    context: ssl.SSLContext = create_ssl_context(
        cafile=connection.ssl_cafile,
        certfile=connection.ssl_certfile,
        keyfile=connection.ssl_keyfile,
    )
    return context
