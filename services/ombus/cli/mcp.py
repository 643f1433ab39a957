"""``ombus mcp``: the memory of one session as tools for a model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import Data, Tenant, refuse
from ombus.cli.output import note
from ombus.cli.shell import settings_for

if TYPE_CHECKING:
    from ombus.client import Client
    from ombus.settings import ProcessSettings


def mcp(
    context: typer.Context,
    session: Annotated[
        str, typer.Option("--session", "-s", metavar="ID", help="The session; no call changes it.")
    ],
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="A gateway. Default: the data folder itself."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Holds the gateway's token."),
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Streamable HTTP at /mcp instead of standard input.")
    ] = False,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=1, max=65_535)] = 7710,
    bearer_file: Annotated[
        Path | None,
        typer.Option(
            "--bearer-file", metavar="FILE", help="Holds what callers over HTTP must say."
        ),
    ] = None,
    page_limit: Annotated[
        int | None, typer.Option("--page-limit", metavar="N", help="Of a page without a limit.")
    ] = None,
    delegate: Annotated[
        bool,
        typer.Option("--delegate", help="Also spawn_agent, wait_agent and cancel_agent."),
    ] = False,
    tenant: Tenant = None,
    data: Data = None,
) -> None:
    """Serve recall, memory_status, memory_view and memory_context of one session over MCP."""
    import asyncio

    from ombus.cli.extras import required
    from ombus.settings import BadSetting

    settings = settings_for(context, data, tenant)
    if not http:
        refuse(context, "is of HTTP: add --http", "host", "port", "bearer_file")
    if url is None:
        refuse(context, "is for a gateway: add --url", "token_file")
    else:
        refuse(context, "is of a data folder: the gateway at --url has its own", "data", "tenant")
    with required("mcp"):
        from ombus.gateway.addresses import is_loopback
        from ombus.mcp.server import memory_server, serve_http
    token, bearer = _said(token_file, "--token-file"), _said(bearer_file, "--bearer-file")
    if http and bearer is None and not is_loopback(host):
        fact = "lets other machines in: give --bearer-file"
        raise BadSetting(f"--host {host}", fact)

    async def run() -> None:
        async with _opened(settings, url, token) as client:
            server = memory_server(
                client.session(session), page_limit, delegates=delegate, secrets=settings.secrets
            )
            if http:
                note(f"serving {session} at http://{host}:{port}/mcp")
                await serve_http(server, host, port, bearer)
            else:
                await server.run_stdio_async()

    asyncio.run(run())


@asynccontextmanager
async def _opened(
    settings: "ProcessSettings", url: str | None, token: str | None
) -> AsyncIterator["Client"]:
    from ombus.client import Client
    from ombus.gateway.inprocess import embedded

    if url is None:
        async with embedded(settings.folder, settings=settings) as client:
            yield client
        return
    # A model waits for the answer: better none than a late one.
    async with Client(url, token, retry_seconds=3) as client:
        yield client


def _said(file: Path | None, option: str) -> str | None:
    from ombus.settings import BadSetting

    if file is None:
        return None
    try:
        said = file.expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(option, f"{file} cannot be read as text") from error
    if not said:
        raise BadSetting(option, f"{file} is empty")
    return said
