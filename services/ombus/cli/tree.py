"""``ombus tree SESSION``: the delegations below a session as they stand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from ombus.cli.options import Data, Json, refuse
from ombus.cli.output import say, say_json
from ombus.cli.shell import settings_for

if TYPE_CHECKING:
    from ombus_schemas.delegating import SummaryAnswer, TreeAnswer, TreeNode

    from ombus.settings import ProcessSettings

MAX_TEXT: Final = 60
REFRESH_S: Final = 0.5


def tree(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="As ID or TENANT/ID.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print it again whenever it has changed.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="A gateway, instead of the data folder."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Holds the gateway's token."),
    ] = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Draw the delegations below a session: states, usage, last milestones, and a summary.

    Reads what whoever supervises has folded (`ombus up`, `ombus serve`, on Kafka a gateway); it
    changes nothing. `--follow` ends when everything is over.
    """
    import time

    if url is None:
        refuse(context, "is for a gateway: add --url", "token_file")
    else:
        refuse(context, "is of a data folder: the gateway at --url has its own", "data")
    settings = settings_for(context, data)
    token = None if token_file is None else token_file.expanduser().read_text("utf-8").strip()
    reading = _folder(settings, session) if url is None else _gateway(url, token, session)
    with reading as read:
        shown: TreeAnswer | None = None
        while True:
            found, summary = read()
            if found != shown:
                if json:
                    say_json(found)
                else:
                    for line in (*lines_of(found), *_sums(summary)):
                        say(line)
                shown = found
            if not follow or all(_is_over(node) for node in found.nodes):
                return
            time.sleep(REFRESH_S)


Read: TypeAlias = "Callable[[], tuple[TreeAnswer, SummaryAnswer]]"


@contextmanager
def _folder(settings: "ProcessSettings", session: str) -> Iterator[Read]:
    from ombus_schemas.delegating import SummaryAnswer, TreeAnswer
    from ombus_schemas.ids import is_key_part, session_key

    from ombus.operator.delegations import Delegations
    from ombus.operator.errors import NoData, NoSession
    from ombus.wiring import has_log
    from ombus.wiring_supervision import has_delegations

    tenant, slash, name = session.rpartition("/")
    tenant = tenant if slash else settings.tenant
    if not is_key_part(tenant) or not is_key_part(name):
        raise NoSession(session)
    if not has_delegations(settings):
        if not has_log(settings.folder):
            raise NoData(settings.folder)
        yield lambda: (TreeAnswer(session=name), SummaryAnswer(session=name))
        return
    key = session_key(tenant, name)
    with Delegations(settings, drives=False) as delegations:
        yield lambda: (delegations.tree(key), delegations.summary(key))


@contextmanager
def _gateway(url: str, token: str | None, session: str) -> Iterator[Read]:
    import asyncio

    from ombus.client import Client, OmbusError
    from ombus.client.delegations import Delegations
    from ombus.operator.errors import OperatorError

    async def ask() -> "tuple[TreeAnswer, SummaryAnswer]":
        async with Client(url, token, retry_seconds=5) as client:
            children = Delegations(client, session)
            return await children.tree(), await children.summary()

    def read() -> "tuple[TreeAnswer, SummaryAnswer]":
        try:
            return asyncio.run(ask())
        except OmbusError as error:
            raise OperatorError(f"{url}: {error}") from error

    yield read


def _sums(summary: "SummaryAnswer") -> list[str]:
    return [
        f"{row.child_id}: {row.attempts} attempts, {row.retries} retries, "
        f"{row.failures} failures, radius {row.failure_radius}, {row.outcome}"
        for row in summary.children
    ]


def lines_of(answer: "TreeAnswer") -> list[str]:
    """Return the tree as lines."""
    if not answer.nodes:
        return [f"{answer.session}: no delegations"]
    lines = [answer.session]
    for n, node in enumerate(answer.nodes, 1):
        lines += _branch(node, "", n == len(answer.nodes))
    return lines


def _branch(node: "TreeNode", indent: str, is_last: bool) -> list[str]:
    lines = [f"{indent}{'└─' if is_last else '├─'} {_line(node)}"]
    below = indent + ("   " if is_last else "│  ")
    for n, each in enumerate(node.children, 1):
        lines += _branch(each, below, n == len(node.children))
    return lines


def _line(node: "TreeNode") -> str:
    parts = [f"{node.child_id} {node.state}"]
    if node.reason and node.state != "finished":
        parts.append(f"({node.reason[:MAX_TEXT]})")
    if node.ended_ms is not None:
        parts.append(f"{(node.ended_ms - node.requested_ms) / 1_000:.1f} s")
    else:
        since = datetime.fromtimestamp(node.requested_ms / 1_000, UTC)
        parts.append(f"since {since:%H:%M:%S}Z")
    if node.lifetime == "session":
        parts.append("session")
    if node.attempts > 1:
        parts.append(f"{node.attempts} children")
    if node.total_tokens:
        parts.append(f"{node.total_tokens:,} tokens")
    if node.events or node.coalesced:
        told = f"{node.events:,} events"
        told += f" (+{node.coalesced:,} coalesced)" if node.coalesced else ""
        parts.append(told + (" capped" if node.is_capped else ""))
    if node.milestone is not None:
        parts.append(f"last {_named(node)}")
    return f"{'  '.join(parts)}  {node.delegation_id}"


def _named(node: "TreeNode") -> str:
    milestone = node.milestone or {}
    said = [str(milestone.get("type", "milestone"))]
    for name in ("name", "tool", "toolName", "note", "text"):
        value = milestone.get(name)
        if isinstance(value, str):
            said.append(" ".join(value.split())[:MAX_TEXT])
            break
    return f"{':'.join(said)} @{node.turn}" if node.turn else ":".join(said)


def _is_over(node: "TreeNode") -> bool:
    return node.ended_ms is not None and all(_is_over(each) for each in node.children)
