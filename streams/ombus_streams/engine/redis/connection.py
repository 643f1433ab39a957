"""How to reach Redis: alone, behind sentinels, or as a cluster; TLS and ACL users by settings."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypedDict, cast
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from redis.retry import Retry

DEFAULT_PORT: Final = 6379
SENTINEL_PORT: Final = 26379

Reply = bytes | int | None | list["Reply"]
Word = bytes | str | int


class BadRedis(ValueError):
    """Connection settings that contradict each other."""


class RedisConnection(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where Redis is and who asks. The granter's user writes; that of a gateway needs no more than
    ``+eval_ro +hmget +hget %R~ombus:*``."""

    url: str = ""
    """``redis://host:port``, or ``rediss://`` with TLS; of a cluster any node."""
    sentinels: str = ""
    """``host:port``, separated by commas; the primary is then asked from them, not from ``url``."""
    sentinel_master: str = "ombus"
    """What the sentinels call the primary."""
    sentinel_password: str | None = None
    cluster: bool = False
    username: str | None = None
    password: str | None = None
    """Never printed."""
    tls: bool = False
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    timeout_ms: int = 500
    """Of connecting and of each answer: whoever waits longer is denied."""

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.sentinels):
            raise BadRedis("give url or sentinels, one of them")
        if self.sentinels and self.cluster:
            raise BadRedis("a cluster has no sentinels: give the url of a node")
        if self.url and urlsplit(self.url).scheme not in ("redis", "rediss"):
            raise BadRedis("url is no redis:// or rediss:// address")
        if self.url and urlsplit(self.url).password is not None:
            raise BadRedis("url holds a password: set username and password")
        if bool(self.ssl_certfile) != bool(self.ssl_keyfile):
            raise BadRedis("ssl-certfile and ssl-keyfile go together: set both or none")
        if not 1 <= self.timeout_ms <= 60_000:
            raise BadRedis("timeout-ms is none from 1 to 60,000")

    @property
    def has_tls(self) -> bool:
        return self.tls or self.url.startswith("rediss://")

    @property
    def timeout(self) -> timedelta:
        return timedelta(milliseconds=self.timeout_ms)

    def __repr__(self) -> str:
        user = f", user {self.username}" if self.username else ""
        return f"RedisConnection({self.url or self.sentinels}{user})"


class Client(Protocol):
    """What we use of Redis's client: commands as words, scripts with their keys."""

    def execute_command(self, *args: Word) -> Reply: ...
    def close(self) -> None: ...


def open_client(connection: RedisConnection) -> Client:
    """Return a client; it connects with the first command and may be used from many threads.

    Timeouts are short and one lost connection is tried again, no more: an outage must show.
    """
    from redis import Redis
    from redis.cluster import ClusterNode, RedisCluster
    from redis.sentinel import Sentinel

    options = _options(connection)
    if connection.sentinels:
        own = _options(connection)
        own["username"], own["password"] = None, connection.sentinel_password
        hosts = addresses(connection.sentinels, SENTINEL_PORT)
        # These parts of the client have no types.
        found = Sentinel(hosts, sentinel_kwargs=own, **options)  # type: ignore[no-untyped-call]
        primary = found.master_for(connection.sentinel_master)  # type: ignore[no-untyped-call]
        return cast(Client, primary)
    parts = urlsplit(connection.url)
    host, port = parts.hostname or "localhost", parts.port or DEFAULT_PORT
    if connection.cluster:
        node = ClusterNode(host, port)  # type: ignore[no-untyped-call]
        return cast(Client, RedisCluster(startup_nodes=[node], **options))
    return cast(Client, Redis(host=host, port=port, **options))


def addresses(text: str, port: int) -> list[tuple[str, int]]:
    """Return the hosts of a list; ``port`` is that of those that name none.

    Raises:
        BadRedis: one of them is no address.
    """
    found: list[tuple[str, int]] = []
    for each in text.split(","):
        host, _, named = each.strip().partition(":")
        if not host or (named and not named.isdecimal()):
            raise BadRedis(f"sentinels: {each.strip()!r} is no host:port")
        found.append((host, int(named) if named else port))
    return found


class _Options(TypedDict, total=False):
    username: str | None
    password: str | None
    socket_timeout: float
    socket_connect_timeout: float
    retry: "Retry"
    ssl: bool
    ssl_ca_certs: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None


def _options(connection: RedisConnection) -> _Options:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    options = _Options(
        username=connection.username,
        password=connection.password,
        socket_timeout=connection.timeout.total_seconds(),
        socket_connect_timeout=connection.timeout.total_seconds(),
        retry=Retry(NoBackoff(), 1),
    )
    if connection.has_tls:
        options |= _Options(
            ssl=True,
            ssl_ca_certs=connection.ssl_cafile,
            ssl_certfile=connection.ssl_certfile,
            ssl_keyfile=connection.ssl_keyfile,
        )
    return options
