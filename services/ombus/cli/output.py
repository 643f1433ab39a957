"""What commands print: data on standard output, as text or JSON; progress on standard error."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from ombus_schemas.jsontext import JsonObject

from ombus.operator.progress import Tell


def say(text: str = "") -> None:
    """Print a line of data and flush it; characters the terminal cannot show are replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


def note(text: str) -> None:
    """Print a line that is no data."""
    print(text, file=sys.stderr, flush=True)


def say_json(value: object) -> None:
    """Print one JSON value on a line of its own."""
    print(msgspec.json.encode(value).decode(), flush=True)


def object_of(value: msgspec.Struct) -> JsonObject:
    """Return a struct as a JSON object, to be extended."""
    found: JsonObject = msgspec.to_builtins(value)
    return found


def columns(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as aligned lines; the columns in ``right`` are set to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


TELL_SECONDS: Final = 30.0


@contextmanager
def progress(title: str) -> Iterator[Tell]:
    """Lend a line of progress on standard error, gone afterwards; without a terminal, now and then.

    What ends within ``TELL_SECONDS`` says nothing there.
    """
    if not sys.stderr.isatty():
        yield _told_now_and_then(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with shown:
        task = shown.add_task(title, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _told_now_and_then(title: str) -> Tell:
    told_at = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at > TELL_SECONDS:
            told_at = time.monotonic()
            note(f"{title}: {done:,} of {total:,}")

    return tell
