"""``ombus serve``: the HTTP API over the data folder, which this process folds, or over Kafka."""

import socket
from pathlib import Path
from typing import Annotated, Final

import typer
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS

from ombus.cli.options import OF_KAFKA, Data, Json, refuse
from ombus.cli.output import note, say, say_json
from ombus.cli.shell import connection_for_command, redis_for_command, settings_for

KAFKA: Final = "On Kafka"


def serve(
    context: typer.Context,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="0: any that is free.")
    ] = 7700,
    beside: Annotated[
        bool, typer.Option("--beside", help="Do not fold: `ombus up` or another gateway does.")
    ] = False,
    cert: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE", help="TLS certificate (PEM).")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="TLS private key (PEM).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0.1,
            help="Requests a second of a caller. Default: gateway-rate of the settings, 500.",
        ),
    ] = None,
    max_body: Annotated[
        int | None,
        typer.Option(
            "--max-body",
            metavar="BYTES",
            min=1_024,
            help="Of one request. Default: gateway-max-body of the settings, 4 MiB.",
        ),
    ] = None,
    max_tails: Annotated[
        int | None,
        typer.Option(
            "--max-tails",
            metavar="N",
            min=1,
            help="Open at once. Default: gateway-max-tails of the settings, 5,000.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="N", min=0, help="Seconds to wait for the folder.")
    ] = 10.0,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="Over the log on Kafka.", rich_help_panel=KAFKA),
    ] = False,
    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="HOST:PORT",
            help="Brokers, as `ombus worker` takes them; implies --kafka.",
            rich_help_panel=KAFKA,
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="NAME",
            help="Names this gateway and its rows, the same after every start. Default: the host.",
            rich_help_panel=KAFKA,
        ),
    ] = None,
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="NAME",
            help="projector: fold and answer. all: also do the work of every worker.",
            rich_help_panel=KAFKA,
        ),
    ] = "projector",
    replicas: Annotated[
        bool,
        typer.Option(
            "--replicas",
            help="Fold what others own, too: reads go on when one of them dies.",
            rich_help_panel=KAFKA,
        ),
    ] = False,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="URL",
            help="Where other gateways reach this one. Default: where it listens.",
            rich_help_panel=KAFKA,
        ),
    ] = None,
    peer_secret_file: Annotated[
        Path | None,
        typer.Option(
            "--peer-secret-file",
            metavar="FILE",
            help="What gateways know each other by. Default: one in the data folder.",
            rich_help_panel=KAFKA,
        ),
    ] = None,
    topic: Annotated[
        str,
        typer.Option(
            "--topic", metavar="NAME", help="Where the entries are.", rich_help_panel=KAFKA
        ),
    ] = ENTRIES,
    dead_letters: Annotated[
        str,
        typer.Option(
            "--dead-letters",
            metavar="NAME",
            help="Where what is no entry goes.",
            rich_help_panel=KAFKA,
        ),
    ] = DEAD_LETTERS,
    grants: Annotated[
        str,
        typer.Option(
            "--grants",
            metavar="NAME",
            help="Where grants of scopes are; [redis] says where their maps are.",
            rich_help_panel=KAFKA,
        ),
    ] = GRANTS,
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
        from ombus.gateway.serving import (
            Listening,
            Server,
            address_of,
            listen,
            open_gateway,
            open_shared_gateway,
        )
        from ombus.gateway.serving import serve as run
        from ombus.wiring_gateway import Sharing
    if (cert is None) != (key is None):
        raise BadSetting("--cert and --key", "are given together")
    listening = Listening(host=host, port=port, cert=cert, key=key)
    limits = limits_of(settings)
    listener: socket.socket | None = None
    where = str(settings.folder)
    if kafka or servers is not None:
        if beside:
            raise BadSetting("--beside", "is of a data folder; on Kafka every gateway folds")
        refuse(context, "is for a data folder: on Kafka there is none to wait for", "wait")
        if advertise is None and host in ("0.0.0.0", "::"):
            raise BadSetting(f"--host {host}", "is no address for other gateways: --advertise one")
        connection = connection_for_command(context, servers)
        sharing = Sharing(
            instance=instance or socket.gethostname(),
            role=role,
            replicates=replicas,
            topic=topic,
            dead_letters=dead_letters,
            grants=grants,
        )
        listener = listen(listening)
        address = advertise or address_of(listening, listener.getsockname()[1])
        gateway = open_shared_gateway(
            settings,
            connection,
            sharing,
            address.rstrip("/"),
            listening,
            limits,
            peer_secret_file,
            redis_for_command(context),
        )
        where = f"topic {topic} at {connection.bootstrap_servers}"
    else:
        of_kafka = (*OF_KAFKA, "replicas", "advertise", "peer_secret_file")
        refuse(context, "is of a gateway on Kafka: add --kafka", *of_kafka)
        if beside:
            refuse(context, "is for the folder, which --beside leaves to another process", "wait")
        gateway = open_gateway(settings, listening, limits, folds=not beside, wait_seconds=wait)

    def ready(bound: int) -> None:
        url = address_of(listening, bound)
        is_open = gateway.callers.is_open
        if json:
            instance = gateway.instance
            say_json({"ready": True, "url": url, "instance": instance, "tokens": not is_open})
        else:
            say(f"ready: {url} over {where}; Ctrl-C ends it")
        if is_open:
            note(
                "no token exists, so whoever reaches this loopback address may do everything; "
                "`ombus token create` ends that"
            )

    asyncio.run(run(Server(gateway, listening, ready), gateway, listener))
    if not json:
        say("stopped")
