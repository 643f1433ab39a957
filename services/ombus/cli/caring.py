"""Commands of whoever keeps a data folder well: ``doctor backup explain settings``."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ombus.cli.options import Data, Json, LeafId, SessionName
from ombus.cli.output import columns, note, object_of, progress, say, say_json
from ombus.cli.shell import Flags, caught_up, desk_for, settings_for

if TYPE_CHECKING:
    from ombus_schemas.jsontext import JsonObject
    from ombus_streams.memory.story import Event, Story

settings_app = typer.Typer(
    help="The settings that hold, each with where it was said.", invoke_without_command=True
)


def doctor(context: typer.Context, json: Json = False, data: Data = None) -> None:
    """Look at files, versions, disk, clock, settings and what waits; 1 if anything needs care."""
    from ombus.cli.exits import FOUND
    from ombus.operator.diagnosis import diagnose

    with desk_for(settings_for(context, data)) as desk:
        checks = diagnose(desk)
    sound = all(check.verdict != "finding" for check in checks)
    if json:
        say_json({"sound": sound, "checks": [object_of(check) for check in checks]})
    else:
        for check in checks:
            say(f"{check.verdict:<8} {check.name}: {check.fact}")
            if check.way_out and check.verdict != "ok":
                say(f"         {check.way_out}")
        say("doctor: all is well" if sound else "doctor: something needs care")
    if not sound:
        raise typer.Exit(FOUND)


def backup(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    json: Json = False,
    data: Data = None,
) -> None:
    """Copy the data folder while it is in use, and prove the copy. It is a data folder itself."""
    from ombus.cli.exits import FOUND
    from ombus.operator.backups import back_up

    settings = settings_for(context, data)
    with desk_for(settings) as desk, progress("copying") as tell:
        done = back_up(desk.engine, settings, target, tell)
    proof = done.verification
    if json:
        say_json({"equal": done.is_equal, **object_of(done)})
    else:
        say(f"copied {done.n_bytes:,} bytes to {done.folder}")
        for each in done.files:
            for fault in each.faults:
                say(f"{each.file}: {fault}")
        n_rows, n_damaged = done.n_rows, done.n_damaged
        verdict = f"{n_damaged:,} damaged" if n_damaged else "sound, and complete"
        say(f"check: {n_rows:,} rows in {len(done.files)} files {verdict}")
        if proof.lag:
            note(f"not folded yet in the copy: {proof.lag:,} records")
        verdict = "equal" if proof.is_equal else f"{proof.n_differences:,} differences"
        say(f"verify: {proof.rows:,} rows of {proof.sessions:,} sessions {verdict}")
    if not done.is_equal:
        raise typer.Exit(FOUND)


def explain(
    context: typer.Context,
    memory_id: Annotated[
        str, typer.Argument(metavar="ID", help="Twelve hex digits, as `view` prints them.")
    ],
    session: SessionName = None,
    leaf: LeafId = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Tell who recorded a memory, from what, and what has happened to it since."""
    from ombus_schemas.records import is_memory_id
    from ombus_streams.memory.story import story

    from ombus.cli.exits import FOUND, MISUSED
    from ombus.operator.lookup import chosen_session, looking

    with (
        caught_up(context, data) as desk,
        looking(desk, chosen_session(desk, session), leaf, None) as lens,
    ):
        found = story(lens.session, lens.leaf, memory_id)
    if json:
        say_json(found)
    else:
        for line in _told(found):
            say(line)
    if found.state == "not_found":
        raise typer.Exit(FOUND if is_memory_id(memory_id) else MISUSED)


@settings_app.callback(invoke_without_command=True)
def settings(context: typer.Context, json: Json = False, data: Data = None) -> None:
    """Print every setting that holds and where it was said; warn of memory keys nobody knows."""
    from ombus.operator.origins import effective, unknown_memory_keys
    from ombus.settings import CONFIG, settings_files

    if context.invoked_subcommand is not None:
        return
    chosen = settings_for(context, data)
    flags: Flags = context.find_object(Flags) or Flags()
    environ = dict(os.environ)
    if flags.config is not None:
        environ[CONFIG] = str(flags.config)
    files = settings_files(environ, Path.cwd())
    given = {
        "data": data or flags.data,
        "tenant": flags.tenant,
        "wait-seconds": flags.wait_seconds,
        "log-level": flags.log_level,
        "log-json": flags.log_json,
    }
    named = frozenset(key for key, value in given.items() if value is not None)
    found = effective(chosen, named, environ, files)
    strange = unknown_memory_keys(files)
    for where in strange:
        note(f"warning: {where} is no memory setting: it is ignored")
    if json:
        say_json({"settings": [object_of(each) for each in found], "unknown": list(strange)})
        return
    rows = [("SETTING", "VALUE", "FROM")]
    rows += [(each.key, each.shown, each.origin) for each in found]
    for line in columns(rows):
        say(line)


@settings_app.command("try")
def try_settings(
    context: typer.Context,
    said: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...", help="Memory settings, as observation.messageTokens=5000."
        ),
    ],
    session: SessionName = None,
    json: Json = False,
    data: Data = None,
) -> None:
    """Show what these settings over those in force would have made of a session, at what cost.

    A dry run: nothing is appended and no model is asked; the model-free provider answers.
    """
    from ombus.operator.lookup import chosen_session
    from ombus.operator.origins import parsed
    from ombus.operator.trial import try_settings as run_trial

    wanted = parsed(said)
    with caught_up(context, data) as desk, progress("trying") as tell:
        found = run_trial(desk, chosen_session(desk, session), wanted, tell)
    if json:
        say_json(found)
        return
    say(f"{found.session}: {found.entries:,} entries folded again")
    say(f"cost: {found.turns:,} questions to a model over about {found.read_tokens:,} tokens")
    now, tried = object_of(found.now), object_of(found.tried)
    rows = [("", "NOW", "TRIED")]
    rows += [(key, f"{now[key]:,}", f"{tried[key]:,}") for key in now]
    for line in columns(rows, right=frozenset({1, 2})):
        say(line)


def _told(found: "Story") -> list[str]:
    from ombus_schemas.records import is_memory_id
    from ombus_streams.memory.recall import NO_MEMORY_ID

    if found.state == "not_found":
        if not is_memory_id(found.id):
            return [NO_MEMORY_ID]
        return [f"{found.id}: no record of this leaf names it; try another --session or --leaf"]
    relevance = f" ({found.relevance})" if found.relevance else ""
    lines = [f"{found.kind} {found.id}{relevance}: {found.state.replace('_', ' ')}"]
    lines.append(found.content if found.content is not None else "(withheld: it is invalidated)")
    noun = "from" if found.kind == "observation" else "rests on"
    lines.append(f"{noun} {', '.join(found.source_ids) or 'nothing named'}")
    return [*lines, *map(_happened, found.events)]


def _happened(event: "Event") -> str:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="seconds")
    line = f"{at}  {_WORDS.get(event.what, event.what.replace('_', ' '))}"
    if event.why is not None:
        line += f" ({_VERDICTS.get(event.why, event.why)})"
    line += f" by {event.entry_id}"
    made = event.produced_by
    if made is not None:
        details: JsonObject = {
            "run": made.run_id,
            "provider": made.provider,
            "model": made.model,
            "prompt": made.prompt_version,
        }
        line += "".join(f", {name} {value}" for name, value in details.items() if value)
    return line


_WORDS = {
    "carried": "carried over into a compaction",
    "trimmed": "trimmed: active, but left out of a compaction's payload",
    "hidden": "hidden: what it rests on was dropped",
    "bound": "bound to a scope",
    "drop_not_accepted": "a drop was not accepted",
}
_VERDICTS = {
    "stale_base": "stale_base: another run had answered before",
    "bad_anchor": "bad_anchor: what it says it covers is not where it hangs",
    "not_accepted": "not_accepted: a record that it read is not accepted on this leaf",
    "invalidated": "invalidated: its sources were while the run was under way",
    "superseded": "superseded: a newer decision or a scope stands before it",
    "no_progress": "no_progress: it goes no further than the last one",
}
