"""``ombus topics``: the topics as they are declared, and who may use them."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import Json, Servers, refuse
from ombus.cli.output import columns, note, say, say_json
from ombus.cli.shell import connection_for_command

if TYPE_CHECKING:
    from ombus.wiring_kafka import Plan

app = typer.Typer(help="The topics on Kafka, as code.", no_args_is_help=True)

Production = Annotated[
    bool, typer.Option("--production", help="Full partition counts, three replicas, two in sync.")
]
Tiered = Annotated[
    bool, typer.Option("--tiered", help="Old segments to remote storage; the brokers have one.")
]


class RoleName(StrEnum):
    """Roles of ``engine.kafka.acls``, for which a command line wants an enumeration."""

    GATEWAY = "gateway"
    WORKER = "worker"
    IMPORTER = "importer"
    FLEET = "fleet"
    READER = "reader"
    OPERATOR = "operator"


@app.command()
def plan(
    context: typer.Context,
    servers: Servers = None,
    production: Production = False,
    tiered: Tiered = False,
    json: Json = False,
) -> None:
    """Show what `apply` would do; exit 1 if that is anything."""
    from ombus.cli.exits import FOUND
    from ombus.wiring_kafka import plan_topics

    connection = connection_for_command(context, servers)
    planned = plan_topics(connection, production=production, tiered=tiered)
    _say(planned, as_json=json)
    if not planned.is_done:
        raise typer.Exit(FOUND)


@app.command()
def apply(
    context: typer.Context,
    servers: Servers = None,
    production: Production = False,
    tiered: Tiered = False,
    json: Json = False,
) -> None:
    """Create and configure the topics and open each partition with its first record.

    May be run again at any time. Never makes a topic smaller: then it exits 1 and changes nothing.
    """
    from ombus.cli.exits import FOUND
    from ombus.wiring_kafka import apply_topics, plan_topics

    connection = connection_for_command(context, servers)
    planned = plan_topics(connection, production=production, tiered=tiered)
    if planned.is_refused:
        _say(planned, as_json=json)
        note("nothing was changed")
        raise typer.Exit(FOUND)
    _say(apply_topics(connection, production=production, tiered=tiered), as_json=json)


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the new topic.")],
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="For ever: grow by a new topic.")
    ],
    servers: Servers = None,
    json: Json = False,
) -> None:
    """Make another topic for entries, to restore an archive into or to grow to more partitions.

    Growing: `topics create`, `replay --from kafka --to kafka` into it, stop the writers, replay
    once more for the rest, then name it with `--topic` everywhere.
    """
    from ombus.wiring_kafka import create_topic

    connection = connection_for_command(context, servers)
    _say(create_topic(connection, name, partitions), as_json=json)


@app.command()
def acl(
    context: typer.Context,
    servers: Servers = None,
    role: Annotated[
        list[RoleName] | None, typer.Option("--role", help="Only these. Default: all.")
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Fleets append by themselves, without a gateway.")
    ] = False,
    json: Json = False,
) -> None:
    """Print what each role may do, as `kafka-acls` commands or JSON. Changes nothing."""
    from ombus.wiring_kafka import acl_commands, acl_rules

    rules = acl_rules([each.value for each in role or RoleName], direct=direct)
    if json:
        refuse(context, "is of the commands: rules as --json name no broker", "servers")
        for rule in rules:
            say_json(rule)
        return
    connection = connection_for_command(context, servers)
    for line in acl_commands(rules, connection):
        say(line)


def _say(planned: "Plan", *, as_json: bool) -> None:
    if as_json:
        for step in planned.steps:
            say_json(step)
        return
    for line in columns([(step.action, step.topic, step.detail) for step in planned.steps]):
        say(line)
