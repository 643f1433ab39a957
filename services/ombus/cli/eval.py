"""``ombus eval``: what a memory holds, what of it is used again, what it costs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ombus.cli.options import Json, refuse
from ombus.cli.output import columns, note, say, say_json

if TYPE_CHECKING:
    import msgspec
    from ombus_schemas.entries import Entry
    from ombus_schemas.jsontext import JsonValue

    from ombus.eval.locomo import Conversation

app = typer.Typer(help="Measure what a memory is worth.", no_args_is_help=True)

_INVENTED: Final = "is of invented conversations, and a file is named"

Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Write the bars there, as SVG.")
]
Seeds = Annotated[
    int, typer.Option("--seeds", min=1, help="How many invented conversations, without a FILE.")
]
Budget = Annotated[
    float, typer.Option("--budget", min=0.01, max=1.0, help="Of the tokens, window included.")
]
Transcripts = Annotated[
    list[Path],
    typer.Argument(metavar="TRANSCRIPT...", help="Transcripts; the format is found by content."),
]


@app.command()
def evidence(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Conversations in the LoCoMo format."),
    ] = None,
    budget: Budget = 0.3,
    seeds: Seeds = 10,
    json: Json = False,
    plot: Plot = None,
) -> None:
    """Tell which share of the questions still has its evidence in the context."""
    from ombus.eval import evidence as measure
    from ombus.eval.plot import bars

    if file is not None:
        refuse(context, _INVENTED, "seeds")
    conversations, source = _conversations(file, seeds)
    found = measure.measured(conversations, budget)
    if plot is not None:
        groups = {
            f"category {kind}": (one.held, one.window) for kind, one in found.by_category.items()
        }
        title = f"evidence held at {budget:g} of the tokens: {source}"
        _draw(plot, bars(title, {"all": (found.held, found.window), **groups}, _MEMORY_WINDOW))
    if json:
        say_json({**_fields(found), "source": source, **_versions()})
        return
    rows = [("CATEGORY", "QUESTIONS", "HELD", "WINDOW")]
    for kind, one in found.by_category.items():
        rows.append((kind, f"{one.questions:,}", f"{one.held:.3f}", f"{one.window:.3f}"))
    rows.append(("all", f"{found.questions:,}", f"{found.held:.3f}", f"{found.window:.3f}"))
    _say_table(rows)
    say()
    say(f"used        {found.ratio:.3f} of the tokens (budget {budget:g}), window included")
    say(f"window      {found.window_ratio:.3f} of the tokens: the last turns, nothing else")
    say(f"overhead    {found.overhead:.3f} more for ids, relevance and titles")
    say(f"left out    {found.left_out:,} questions: no evidence, category 5 or no shared word")
    say(f"readable    {found.readable:.3f} of {found.lines:,} lines")
    say(f"time        {found.seconds:.1f} s")
    _say_versions(found.measure, source)


@app.command()
def reuse(
    transcripts: Transcripts,
    budget: Budget = 0.1,
    every: Annotated[
        int, typer.Option("--every", min=1, help="Tokens between two compaction points.")
    ] = 20_000,
    json: Json = False,
    plot: Plot = None,
) -> None:
    """Tell which share of the identifiers that are named again is still in the context."""
    from ombus.eval import reuse as measure
    from ombus.eval.plot import bars

    found = [measure.measured(path, budget, every) for path in transcripts]
    if plot is not None:
        groups = {one.transcript[:34]: (one.memory, one.default, one.window) for one in found}
        title = f"identifiers held at {budget:g} of the tokens"
        _draw(plot, bars(title, groups, ("memory", "default compaction", "window")))
    if json:
        say_json({"transcripts": list(map(_fields, found)), **_versions()})
        return
    rows = [
        ("TRANSCRIPT", "TOKENS", "POINTS", "REUSED", "MEMORY", "DEFAULT", "WINDOW", "USED", "TIME")
    ]
    for one in found:
        counts = (one.tokens, one.points, one.identifiers)
        shares = (one.memory, one.default, one.window, one.ratio)
        rows.append(
            (
                one.transcript,
                *(f"{count:,}" for count in counts),
                *(f"{share:.3f}" for share in shares),
                f"{one.seconds:.1f} s",
            )  # type: ignore[arg-type]  # nine texts, of which some are spread
        )
    _say_table(rows)
    _say_versions(measure.MEASURE, f"budget {budget:g}, a point every {every:,} tokens")


@app.command()
def cost(
    context: typer.Context,
    transcripts: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[TRANSCRIPT...]", help="None: one invented conversation."),
    ] = None,
    entries: Annotated[
        int, typer.Option("--entries", min=10, help="Of the invented conversation.")
    ] = 3_000,
    json: Json = False,
    plot: Plot = None,
) -> None:
    """Tell what a memory reads, writes and saves, and how long it takes, per session."""
    from ombus.eval import cost as measure
    from ombus.eval.plot import bars
    from ombus.eval.reuse import entries_of

    if transcripts:
        refuse(context, _INVENTED, "entries")
    found = [measure.measured(path.name, entries_of(path)) for path in transcripts or ()]
    if not transcripts:
        found.append(measure.measured(f"invented, {entries:,} entries", _invented(entries)))
    if plot is not None:
        groups = {one.session[:34]: (one.tokens, one.written, one.context) for one in found}
        _draw(plot, bars("tokens per session", groups, ("messages", "written", "context")))
    if json:
        say_json({"sessions": list(map(_fields, found)), **_versions()})
        return
    head = "SESSION ENTRIES TOKENS READ WRITTEN CONTEXT SAVED RUNS LOG WORKERS TIME"
    rows: list[Sequence[str]] = [[*head.split(), "PER ENTRY"]]
    for each in found:
        counts = (each.entries, each.tokens, each.read, each.written, each.context, each.saved)
        more = (each.runs, each.log_bytes, each.worker_bytes)
        rows.append(
            [
                each.session,
                *(f"{count:,}" for count in (*counts, *more)),
                f"{each.seconds:.2f} s",
                f"{each.ms_per_entry:.2f} ms",
            ]
        )
    _say_table(rows)
    say("log and workers in bytes: every entry of the session, and those of the workers alone")
    _say_versions(measure.MEASURE, "default settings")


@app.command()
def ablate(
    context: typer.Context,
    transcripts: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[TRANSCRIPT...]", help="None: the invented conversations."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="Default: 0.3 for talk, 0.1 for work.")
    ] = None,
    seeds: Seeds = 10,
    json: Json = False,
) -> None:
    """Tell what each rule of the extractive provider earns, by switching it off."""
    from ombus.eval import ablation

    if transcripts:
        refuse(context, _INVENTED, "seeds")
        source = ", ".join(path.name for path in transcripts)
        found = ablation.of_work(transcripts, budget or 0.1)
    else:
        conversations, source = _conversations(None, seeds)
        found = ablation.of_talk(conversations, budget or 0.3)
    if json:
        say_json({"rules": list(map(_fields, found)), "source": source, **_versions()})
        return
    rows = [("WITHOUT", "HELD", "EARNS", "USED", "READABLE")]
    for one in found:
        readable = "" if one.readable is None else f"{one.readable:.3f}"
        earns = "" if one is found[0] else f"{found[0].held - one.held:+.3f}"
        rows.append((one.without, f"{one.held:.3f}", earns, f"{one.ratio:.3f}", readable))
    _say_table(rows)
    _say_versions("ablation/1", source)


@app.command()
def invent(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the conversations go.")],
    seeds: Seeds = 10,
) -> None:
    """Write the invented conversations as a file in the LoCoMo format."""
    from ombus.eval.locomo import written

    conversations, source = _conversations(None, seeds)
    file.write_bytes(written(conversations))
    note(f"{file}: {len(conversations)} conversations, {source}")


_MEMORY_WINDOW = ("memory", "window")


def _conversations(file: Path | None, seeds: int) -> "tuple[list[Conversation], str]":
    from ombus.eval.conversations import GENERATOR, conversation_of
    from ombus.eval.locomo import BadConversations, read_conversations

    if file is None:
        found = [conversation_of(seed) for seed in range(1, seeds + 1)]
        return found, f"{GENERATOR}, seeds 1 to {seeds}"
    try:
        return read_conversations(file), file.name
    except BadConversations as error:
        raise typer.BadParameter(str(error)) from error


def _invented(n_entries: int) -> "list[Entry]":
    from ombus.eval.conversations import conversation_of
    from ombus.eval.locomo import entries_of
    from ombus.eval.remembering import SESSION, TENANT

    conversation = conversation_of(1, n_entries)
    return entries_of(conversation, TENANT, SESSION)[0][:n_entries]


def _fields(value: "msgspec.Struct") -> "Mapping[str, JsonValue]":
    from ombus.cli.output import object_of

    return object_of(value)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    from ombus.eval.remembering import PROVIDER

    return {"ombus": version("ombus"), "provider": PROVIDER}


def _say_versions(measure: str, source: str) -> None:
    versions = ", ".join(f"{name} {text}" for name, text in _versions().items())
    say(f"{measure} over {source}; {versions}")


def _say_table(rows: Sequence[Sequence[str]]) -> None:
    for line in columns(rows, right=frozenset(range(1, len(rows[0])))):
        say(line)


def _draw(file: Path, svg: str) -> None:
    file.write_text(svg, encoding="utf-8")
    note(f"plot: {file}")
