"""``ombus export``: a session with its memory, to be taken elsewhere."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated

import typer

from ombus.cli.options import Data, LeafId, refuse
from ombus.cli.output import note
from ombus.cli.shell import caught_up


class ExportFormat(StrEnum):
    ombus = "ombus"
    pi = "pi"
    markdown = "markdown"


def export(
    context: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="ID or TENANT/ID.")],
    format: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="ombus: every entry, for another ombus. pi: a pi v3 session. markdown: a page.",
        ),
    ] = ExportFormat.ombus,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: standard output."),
    ] = None,
    leaf: LeafId = None,
    data: Data = None,
) -> None:
    """Write a session with its memory as our JSONL, as a pi session or as Markdown.

    --leaf chooses the branch of the Markdown page; the other formats hold every branch.
    """
    from ombus.exporters import export_markdown, export_ombus, export_pi
    from ombus.operator.lookup import chosen_session, looking

    if format is not ExportFormat.markdown:
        refuse(context, "chooses a branch, and this format holds all: --format markdown", "leaf")
    with caught_up(context, data) as desk:
        key = chosen_session(desk, session)
        with _target(output) as file:
            match format:
                case ExportFormat.ombus:
                    ours = export_ombus(desk.engine, key)
                    _write(file, ours)
                    said = f"{ours.n_entries:,} entries"
                    if ours.n_bad:
                        said += f", {ours.n_bad:,} bad records left out"
                case ExportFormat.pi:
                    with desk.engine.reading(key) as live:
                        pi = export_pi(live.session)
                        _write(file, pi)
                    said = f"{pi.n_entries:,} entries, {pi.n_left_out:,} of ours alone left out"
                    if pi.n_withheld:
                        said += f", {pi.n_withheld:,} withheld"
                case ExportFormat.markdown:
                    with looking(desk, key, leaf) as lens:
                        _write(file, export_markdown(lens.session, lens.leaf))
                    said = f"the branch that ends at {lens.leaf.tip_id}"
    if output is not None:
        note(f"{output}: {key.decode()}, {said}")


@contextlib.contextmanager
def _target(output: Path | None) -> Iterator[IO[bytes]]:
    """Lend what is written to; a file has its name only when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = output.with_name(f".{output.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def _write(file: IO[bytes], pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        file.write(piece)
