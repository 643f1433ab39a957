"""``ombus tree SESSION``: the delegations below a session as they stand."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ombus.cli.options import Data, Json
from ombus.cli.output import say, say_json
from ombus.cli.shell import settings_for

if TYPE_CHECKING:
    from ombus_schemas.delegating import TreeAnswer, TreeNode

MAX_TEXT: Final = 60
REFRESH_S: Final = 0.5


def tree(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="As ID or TENANT/ID.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print it again whenever it has changed.")
    ] = False,
    json: Json = False,
    data: Data = None,
) -> None:
    """Draw the delegations below a session: states, usage, last milestones, and a summary.

    Reads what whoever supervises the folder has folded (`ombus up`, `ombus serve`); it changes
    nothing. `--follow` ends when everything is over.
    """
    import time

    from ombus_schemas.ids import is_key_part, session_key

    from ombus.operator.delegations import Delegations
    from ombus.operator.errors import NoData, NoSession
    from ombus.wiring_supervision import has_delegations

    settings = settings_for(context, data)
    tenant, slash, name = session.rpartition("/")
    tenant = tenant if slash else settings.tenant
    if not is_key_part(tenant) or not is_key_part(name):
        raise NoSession(session)
    if not has_delegations(settings):
        raise NoData(settings.folder)
    key = session_key(tenant, name)
    with Delegations(settings, drives=False) as delegations:
        shown: TreeAnswer | None = None
        while True:
            found = delegations.tree(key)
            if found != shown:
                if json:
                    say_json(found)
                else:
                    for line in lines_of(found):
                        say(line)
                    for row in delegations.summary(key).children:
                        say(
                            f"{row.child_id}: {row.attempts} attempts, {row.retries} retries, "
                            f"{row.failures} failures, radius {row.failure_radius}, {row.outcome}"
                        )
                shown = found
            if not follow or all(_is_over(node) for node in found.nodes):
                return
            time.sleep(REFRESH_S)


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
