"""``ombus serve``: the HTTP API over the data folder, which this process also folds."""

from pathlib import Path
from typing import Annotated

import typer

from ombus.cli.options import Data, Json
from ombus.cli.output import note, say, say_json
from ombus.cli.shell import settings_for


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
        float, typer.Option("--rate", metavar="N", min=0.1, help="Requests a second of a caller.")
    ] = 500.0,
    max_body: Annotated[
        int, typer.Option("--max-body", metavar="BYTES", min=1_024, help="Of one request.")
    ] = 4_194_304,
    max_tails: Annotated[
        int, typer.Option("--max-tails", metavar="N", min=0, help="Open at once.")
    ] = 5_000,
    wait: Annotated[
        float, typer.Option("--wait", metavar="N", min=0, help="Seconds to wait for the folder.")
    ] = 10.0,
    json: Json = False,
    data: Data = None,
) -> None:
    """Serve the HTTP API over the data folder, fold it and run its workers, until terminated."""
    import asyncio

    from ombus.cli.extras import required
    from ombus.settings import BadSetting

    settings = settings_for(context, data, quiet=False)
    with required("gateway"):
        from ombus.gateway.limits import Limits
        from ombus.gateway.serving import Listening, Server, open_gateway
        from ombus.gateway.serving import serve as run
    if (cert is None) != (key is None):
        raise BadSetting("--cert and --key", "are given together")
    listening = Listening(host=host, port=port, cert=cert, key=key)
    limits = Limits(
        requests_per_second=rate,
        burst=max(1, round(2 * rate)),
        max_body_bytes=max_body,
        max_tails=max_tails,
    )
    gateway = open_gateway(settings, listening, limits, folds=not beside, wait_seconds=wait)

    def ready(bound: int) -> None:
        scheme = "http" if cert is None else "https"
        named = f"[{host}]" if ":" in host else host
        url = f"{scheme}://{named}:{bound}"
        is_open = gateway.is_open
        if json:
            instance = gateway.instance
            say_json({"ready": True, "url": url, "instance": instance, "tokens": not is_open})
        else:
            say(f"ready: {url} over {settings.folder}; Ctrl-C ends it")
        if is_open:
            note(
                "no token exists, so whoever reaches this loopback address may do everything; "
                "`ombus token create` ends that"
            )

    asyncio.run(run(Server(gateway, listening, ready), gateway))
    if not json:
        say("stopped")
