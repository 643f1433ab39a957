"""A gateway on a socket: who may be let in without a token, how it starts and how it ends.

On Kafka it listens before it joins the others: its address is what it says of itself there.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog
import uvicorn

from ombus.gateway.addresses import is_loopback
from ombus.gateway.app import Gateway
from ombus.gateway.hosting import Host
from ombus.gateway.limits import Limits
from ombus.gateway.tokens import Tokens
from ombus.operator.delegations import Delegations
from ombus.operator.serving import SIGNALS, own
from ombus.operator.sharing import ScopeSharing
from ombus.settings import BadSetting, ProcessSettings
from ombus.wiring import open_engine
from ombus.wiring_gateway import Sharing, open_kafka_engine
from ombus.wiring_grants import RedisConnection, open_kafka_sharing
from ombus.wiring_kafka import Connection

GRACE_SECONDS: Final = 5
KEEP_ALIVE_SECONDS: Final = 30
WATCH_SECONDS: Final = 0.2
BESIDE: Final = "stop that one first, or serve beside it with --beside"

_log = structlog.get_logger("ombus.gateway")


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how."""

    host: str = "127.0.0.1"
    port: int = 7700
    """0: any that is free."""
    cert: Path | None = None
    key: Path | None = None


def open_gateway(
    settings: ProcessSettings,
    listening: Listening,
    limits: Limits,
    *,
    folds: bool = True,
    wait_seconds: float = 10.0,
) -> Gateway:
    """Return a gateway over the data folder. ``folds``: it owns the folder and does the work.

    Raises:
        BadSetting: there is no token, and others than this machine could reach it.
        Busy: somebody else owns the folder.
    """
    tokens, is_open = _tokens(settings, listening)
    if folds:
        engine = own(settings, wait_seconds, "ombus serve", BESIDE)
    else:
        engine = open_engine(settings, owns=False)
    host = Host(settings, engine, folds=folds, threads=limits.threads)
    return Gateway(host, tokens, limits, is_open=is_open)


def open_shared_gateway(
    settings: ProcessSettings,
    connection: Connection,
    sharing: Sharing,
    address: str,
    listening: Listening,
    limits: Limits,
    peer_secret_file: Path | None = None,
    redis: RedisConnection | None = None,
) -> Gateway:
    """Return a gateway over a log on Kafka that it shares with others, who reach it at ``address``.

    ``redis`` holds the maps of the granter; without it this process folds the grants topic itself.

    Raises:
        BadSetting: as ``open_gateway``, or the secret of the gateways cannot be read.
        BrokerError, StoreError: see their way out.
    """
    from ombus.gateway.branches import GatewayBranches
    from ombus.gateway.peers import Peers, peer_secret
    from ombus.gateway.routing import Router
    from ombus.wiring_delegations import open_kafka_supervision

    tokens, is_open = _tokens(settings, listening)
    try:
        peers = Peers(peer_secret(settings.folder, peer_secret_file))
    except (OSError, ValueError) as error:
        raise BadSetting("peer-secret-file", f"cannot be used: {error}") from error
    engine = open_kafka_engine(settings, connection, sharing, address)
    works = sharing.role == "all"
    host = Host(settings, engine, folds=True, works=works, threads=limits.threads)
    router = Router(engine, peers, address, limits.send_seconds)

    def delegations() -> Delegations:
        rows = f"{sharing.instance}/gateway"
        return Delegations(settings, supervision=open_kafka_supervision(settings, connection, rows))

    def scopes() -> ScopeSharing:
        branches = GatewayBranches(host, engine, peers, address)
        return open_kafka_sharing(
            connection, redis, settings.folder, branches, host.desk.clock, sharing.grants,
            engine.telemetry.tally,
        )  # fmt: skip

    return Gateway(
        host,
        tokens,
        limits,
        is_open=is_open,
        instance=sharing.instance,
        router=router,
        delegations=delegations,
        sharing=scopes,
    )


def listen(listening: Listening) -> socket.socket:
    """Return a socket that listens.

    Raises:
        BadSetting: somebody else listens there, or nobody can.
    """
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        return socket.create_server((listening.host, listening.port), family=family)
    except OSError as error:
        fact = f"cannot be listened on: {error.strerror}"
        raise BadSetting(f"--port {listening.port}", fact) from error


def address_of(listening: Listening, port: int) -> str:
    """Return the URL under which a gateway is reached where it listens."""
    scheme = "http" if listening.cert is None else "https"
    named = f"[{listening.host}]" if ":" in listening.host else listening.host
    return f"{scheme}://{named}:{port}"


def _tokens(settings: ProcessSettings, listening: Listening) -> tuple[Tokens, bool]:
    """Return the tokens, and whether none is needed while there is none."""
    tokens = Tokens(settings.folder)
    is_open = is_loopback(listening.host)
    if not is_open and tokens.is_empty():
        tokens.close()
        raise BadSetting(
            f"--host {listening.host}",
            "lets other machines in, and there is no token: `ombus token create` makes one",
        )
    return tokens, is_open


class Server(uvicorn.Server):
    """Uvicorn, which says when it listens, and lets tails go before it waits for them."""

    def __init__(self, gateway: Gateway, listening: Listening, ready: Callable[[int], None]):
        limits = gateway.limits
        super().__init__(
            uvicorn.Config(
                gateway.app(),
                host=listening.host,
                port=listening.port,
                log_config=None,
                access_log=False,
                lifespan="on",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                # Answers 503 by itself; the gateway's own bounds come first.
                limit_concurrency=limits.max_tails + 2 * limits.max_requests,
                ssl_certfile=listening.cert,
                ssl_keyfile=listening.key,
            )
        )
        self._gateway, self._ready = gateway, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            bound = [each.getsockname() for held in self.servers for each in held.sockets]
            self._ready(int(bound[0][1]) if bound else self.config.port)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals end the server in order; uvicorn's own would raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self.should_exit = True

        for number in SIGNALS:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._gateway.hub.close()
        await super().shutdown(sockets)


async def serve(server: Server, gateway: Gateway, listener: socket.socket | None = None) -> None:
    """Serve until a signal, or until the engine fails; then that error is raised.

    ``listener``: a socket that listens already; it is closed at the end.

    Raises: what ended the engine.
    """

    async def watch() -> None:
        # Another thread sets it, and an executor's thread that waits could not be given up.
        while not gateway.host.loop.ended.is_set():  # noqa: ASYNC110
            await asyncio.sleep(WATCH_SECONDS)
        server.should_exit = True

    watching = asyncio.create_task(watch())
    try:
        await server.serve(sockets=None if listener is None else [listener])
    finally:
        watching.cancel()
    if gateway.host.loop.failure is not None:
        raise gateway.host.loop.failure
    if not server.started:
        raise BadSetting(f"--port {server.config.port}", "cannot be listened on: is it taken?")
