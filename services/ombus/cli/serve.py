"""``ombus serve``: the HTTP API over the data folder, which this process folds, or over Kafka."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS

from ombus.cli.options import OF_KAFKA, Data, Json, refuse
from ombus.cli.output import note, say, say_json
from ombus.cli.shell import connection_for_command, redis_for_command, settings_for

if TYPE_CHECKING:
    from ombus.gateway.app import Gateway
    from ombus.gateway.serving import Listening
    from ombus.settings import ProcessSettings
    from ombus.wiring_gateway import Sharing

KAFKA: Final = "On Kafka"
_OF_GATEWAYS: Final = (*OF_KAFKA, "replicas", "advertise", "peer_secret_file")

Address: TypeAlias = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
]
Port: TypeAlias = Annotated[
    int, typer.Option("--port", metavar="N", min=0, max=65_535, help="0: any that is free.")
]
Beside: TypeAlias = Annotated[
    bool, typer.Option("--beside", help="Do not fold: `ombus up` or another gateway does.")
]
Certificate: TypeAlias = Annotated[
    Path | None, typer.Option("--cert", metavar="FILE", help="TLS certificate (PEM).")
]
PrivateKey: TypeAlias = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="TLS private key (PEM).")
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        min=0.1,
        help="Requests a second of a caller. Default: gateway-rate of the settings, 500.",
    ),
]
MaxBody: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-body",
        metavar="BYTES",
        min=1_024,
        help="Of one request. Default: gateway-max-body of the settings, 4 MiB.",
    ),
]
MaxTails: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-tails",
        metavar="N",
        min=1,
        help="Open at once. Default: gateway-max-tails of the settings, 5,000.",
    ),
]
FolderWait: TypeAlias = Annotated[
    float, typer.Option("--wait", metavar="N", min=0, help="Seconds to wait for the folder.")
]
GatewayOnKafka: TypeAlias = Annotated[
    bool,
    typer.Option("--kafka", help="Over the log on Kafka.", rich_help_panel=KAFKA),
]
GatewayServers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="Brokers, as `ombus worker` takes them; implies --kafka.",
        rich_help_panel=KAFKA,
    ),
]
GatewayInstance: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--instance",
        metavar="NAME",
        help="Names this gateway and its rows, the same after every start. Default: the host.",
        rich_help_panel=KAFKA,
    ),
]
GatewayRole: TypeAlias = Annotated[
    str,
    typer.Option(
        "--role",
        metavar="NAME",
        help="projector: fold and answer. all: also do the work of every worker.",
        rich_help_panel=KAFKA,
    ),
]
Replicates: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--replicas",
        help="Fold what others own, too: reads go on when one of them dies.",
        rich_help_panel=KAFKA,
    ),
]
Advertised: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--advertise",
        metavar="URL",
        help="Where other gateways reach this one. Default: where it listens.",
        rich_help_panel=KAFKA,
    ),
]
PeerSecretFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--peer-secret-file",
        metavar="FILE",
        help="What gateways know each other by. Default: one in the data folder.",
        rich_help_panel=KAFKA,
    ),
]
GatewayTopic: TypeAlias = Annotated[
    str,
    typer.Option("--topic", metavar="NAME", help="Where the entries are.", rich_help_panel=KAFKA),
]
DeadLetters: TypeAlias = Annotated[
    str,
    typer.Option(
        "--dead-letters",
        metavar="NAME",
        help="Where what is no entry goes.",
        rich_help_panel=KAFKA,
    ),
]
GrantsTopic: TypeAlias = Annotated[
    str,
    typer.Option(
        "--grants",
        metavar="NAME",
        help="Where grants of scopes are; [redis] says where their maps are.",
        rich_help_panel=KAFKA,
    ),
]


def serve(
    context: typer.Context,
    host: Address = "127.0.0.1",
    port: Port = 7700,
    beside: Beside = False,
    cert: Certificate = None,
    key: PrivateKey = None,
    rate: Rate = None,
    max_body: MaxBody = None,
    max_tails: MaxTails = None,
    wait: FolderWait = 10.0,
    kafka: GatewayOnKafka = False,
    servers: GatewayServers = None,
    instance: GatewayInstance = None,
    role: GatewayRole = "projector",
    replicas: Replicates = False,
    advertise: Advertised = None,
    peer_secret_file: PeerSecretFile = None,
    topic: GatewayTopic = ENTRIES,
    dead_letters: DeadLetters = DEAD_LETTERS,
    grants: GrantsTopic = GRANTS,
    json: Json = False,
    data: Data = None,
) -> None:
    """Serve the HTTP API over the data folder, fold it and run its workers, until terminated.

    With --kafka the log is Kafka's, and several gateways share it: each folds the partitions that
    the group gives it, and passes requests for the others on to whoever has them.
    """
    import asyncio

    from ombus.cli.extras import required
    from ombus.settings import BadSetting

    given: dict[str, JsonValue] = {
        "gateway-rate": rate,
        "gateway-max-body": max_body,
        "gateway-max-tails": max_tails,
    }
    settings = settings_for(context, data, quiet=False, flags=given)
    with required("gateway"):
        from ombus.gateway.limits import limits_of
        from ombus.gateway.serving import Listening, Server, address_of, open_gateway
        from ombus.gateway.serving import serve as run
        from ombus.wiring_gateway import Sharing
    if (cert is None) != (key is None):
        raise BadSetting("--cert and --key", "are given together")
    listening = Listening(host=host, port=port, cert=cert, key=key)
    listener: socket.socket | None = None
    where = str(settings.folder)
    if kafka or servers is not None:
        if beside:
            raise BadSetting("--beside", "is of a data folder; on Kafka every gateway folds")
        refuse(context, "is for a data folder: on Kafka there is none to wait for", "wait")
        sharing = Sharing(
            instance=instance or socket.gethostname(),
            role=role,
            replicates=replicas,
            topic=topic,
            dead_letters=dead_letters,
            grants=grants,
        )
        gateway, listener, brokers = _shared(
            context, settings, listening, sharing, servers, advertise, peer_secret_file
        )
        where = f"topic {topic} at {brokers}"
    else:
        refuse(context, "is of a gateway on Kafka: add --kafka", *_OF_GATEWAYS)
        if beside:
            refuse(context, "is for the folder, which --beside leaves to another process", "wait")
        gateway = open_gateway(
            settings, listening, limits_of(settings), folds=not beside, wait_seconds=wait
        )

    def ready(bound: int) -> None:
        _say_ready(gateway, address_of(listening, bound), where, as_json=json)

    asyncio.run(run(Server(gateway, listening, ready), gateway, listener))
    if not json:
        say("stopped")


def _shared(
    context: typer.Context,
    settings: "ProcessSettings",
    listening: "Listening",
    sharing: "Sharing",
    servers: str | None,
    advertised: str | None,
    peer_secret_file: Path | None,
) -> "tuple[Gateway, socket.socket, str]":
    """Return a gateway on Kafka, the socket where it listens already, and the brokers."""
    from ombus.gateway.limits import limits_of
    from ombus.gateway.serving import address_of, listen, open_shared_gateway
    from ombus.settings import BadSetting

    host = listening.host
    if advertised is None and host in ("0.0.0.0", "::"):
        raise BadSetting(f"--host {host}", "is no address for other gateways: --advertise one")
    connection = connection_for_command(context, servers)
    listener = listen(listening)
    address = advertised or address_of(listening, listener.getsockname()[1])
    gateway = open_shared_gateway(
        settings,
        connection,
        sharing,
        address.rstrip("/"),
        listening,
        limits_of(settings),
        peer_secret_file,
        redis_for_command(context),
    )
    return gateway, listener, connection.bootstrap_servers


def _say_ready(gateway: "Gateway", url: str, where: str, *, as_json: bool) -> None:
    is_open = gateway.callers.is_open
    if as_json:
        instance = gateway.instance
        say_json({"ready": True, "url": url, "instance": instance, "tokens": not is_open})
    else:
        say(f"ready: {url} over {where}; Ctrl-C ends it")
    if is_open:
        note(
            "no token exists, so whoever reaches this loopback address may do everything; "
            "`ombus token create` ends that"
        )
