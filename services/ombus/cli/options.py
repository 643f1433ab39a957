"""Options that several commands take, each said once, and what refuses those that mean nothing."""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON: one object, or one a line.")
]
SessionName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--session",
        "-s",
        metavar="ID",
        help="The session, as ID or TENANT/ID. Not needed when there is exactly one.",
    ),
]
LeafId: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--leaf",
        metavar="ENTRY",
        help="The entry the branch ends at. Default: the entry that came last.",
    ),
]
ScopeName: TypeAlias = Annotated[str, typer.Argument(metavar="SCOPE", help="The scope's id.")]
AsOf: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="POSITION",
        help="Answer as the log stood below this position, <incarnation>:<partition>:<offset> as "
        "`status` prints it. What was invalidated since stays out.",
    ),
]
Files: TypeAlias = Annotated[
    list[Path],
    typer.Argument(metavar="FILES...", help="Transcripts; the format is found by content."),
]
Data: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data", metavar="FOLDER", help="The data folder, as `ombus --data`."),
]
Tenant: TypeAlias = Annotated[
    str | None,
    typer.Option("--tenant", metavar="ID", help="Whose sessions. Default: `local`."),
]
OnKafka: TypeAlias = Annotated[
    bool, typer.Option("--kafka", help="The rows that workers on this machine fold from Kafka.")
]
RoleName: TypeAlias = Annotated[
    str,
    typer.Option("--role", metavar="NAME", help="Whose rows: as `ombus worker NAME` was started."),
]
Instance: TypeAlias = Annotated[
    str | None,
    typer.Option("--instance", metavar="NAME", help="As the worker's. Default: the host."),
]
TopicName: TypeAlias = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="Where the entries are.")
]
Servers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="Brokers. Default: OMBUS_KAFKA_BOOTSTRAP_SERVERS, else `ombus.toml`, table kafka.",
    ),
]
FromCheckpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--checkpoints", metavar="PLACE", help="Begin with the newest ones in this folder or URL."
    ),
]


def refuse(context: typer.Context, fact: str, *names: str) -> None:
    """Refuse each of the named parameters that the command line gave: here it means nothing.

    What the environment or a default says is for whoever has a use for it.

    Raises:
        BadSetting: the first of them that was given, with ``fact``.
    """
    from ombus.settings import BadSetting

    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise BadSetting(parameter.opts[0], fact)


OF_KAFKA: Final = ("servers", "topic", "dead_letters", "events", "grants", "instance", "role")
"""Parameters that mean nothing where there is no Kafka, in every command that has them."""
