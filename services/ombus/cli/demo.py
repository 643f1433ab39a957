"""The whole way on one sample: import, observe, reflect, recall, compact, rebuild, verify.

Everything happens in a temporary folder, with a provider that needs no model; what is printed was
computed just now. A step that does not show what it should raises ``DemoFailed``.
"""

import tempfile
import time
from collections.abc import AsyncGenerator
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import Observation
from ombus_streams.memory import reading
from ombus_streams.memory.recall import RecalledObservation
from ombus_streams.runtime.provider import ModelProvider, ModelRequest, TurnEvent

from ombus.cli.operating import say_verification
from ombus.cli.output import say
from ombus.operator import requests
from ombus.operator.desk import Desk
from ombus.operator.errors import Misaddressed, OperatorError
from ombus.operator.intake import import_file
from ombus.operator.lookup import looking
from ombus.operator.rebuilding import rebuild
from ombus.operator.verification import verify_folder
from ombus.settings import ProcessSettings
from ombus.wiring import Providers, extractive_providers

SAMPLE: Final = "ferry.jsonl"
SESSION: Final = "ferry"
SETTINGS: Final[JsonObject] = {
    "observation": {"messageTokens": 1_000},
    "reflection": {"observationTokens": 500},
    "dropper": {"targetTokens": 1_000},
    "context": {"recentMessages": 6},
}
"""Low thresholds, so that a short session shows what long ones do."""


class DemoFailed(OperatorError):
    """Something did not come out as the demo promises: a bug, here or below."""

    code = "demo"


class Counted:
    """A provider that counts the turns it is asked for."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider, self.name, self.model = provider, provider.name, provider.model
        self.n_turns = 0

    def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        self.n_turns += 1
        return self._provider.turn(request)


def run(keep: Path | None = None) -> None:
    """Show it. ``keep`` is an empty folder for the data; without it nothing is left behind.

    Raises:
        DemoFailed, Misaddressed: as they say.
    """
    sample = files("ombus.cli") / "sample" / SAMPLE
    with as_file(sample) as path:
        if keep is not None:
            if keep.exists() and any(keep.iterdir()):
                raise Misaddressed(f"{keep} is not empty: name a new folder to keep the demo in")
            _run(path, keep)
            say(f"kept: look around with `ombus --data {keep} view`")
            return
        with tempfile.TemporaryDirectory(prefix="ombus-demo-") as folder:
            _run(path, Path(folder))


def _run(sample: Path, folder: Path) -> None:
    settings = ProcessSettings(data=str(folder), memory_said=SETTINGS)
    provider = Counted(extractive_providers()["observer"])
    providers: Providers = {"observer": provider, "reflector": provider, "dropper": provider}
    with Desk(settings, needs_log=False, providers=providers) as desk:
        _title("1. Import a transcript of Claude Code (invented; it ships with ombus)")
        key = _import(desk, sample)
        _title("2. Flush: observe, reflect, prune up to the last message")
        _flush(desk, key)
        _title("3. The memory, each line with the lines of the file it comes from")
        chosen = _show(desk, key)
        _title(f"4. Recall {chosen.id}: back to the exact words")
        _recall(desk, key, chosen, sample)
        _title("5. Compact: a fold of the memory, no model")
        _compact(desk, key, provider)
    _title("6. Rebuild everything from the log, then prove it")
    _prove(settings)


def _import(desk: Desk, sample: Path) -> bytes:
    (intake,) = import_file(desk, sample, SESSION)
    n_runs = desk.settle()
    say(
        f"{intake.lines} lines, {intake.entries} entries on the log, {n_runs} runs of workers since"
    )
    (again,) = import_file(desk, sample, SESSION)
    say(f"the same file again: {again.entries} entries added, {again.duplicates} duplicates")
    if again.entries or not n_runs:
        raise DemoFailed("the import did not come out as promised: please report this")
    return intake.session.encode()


def _flush(desk: Desk, key: bytes) -> None:
    done = requests.flush(desk, key)
    say(
        f"{done.observations} more observations, {done.reflections} reflections, "
        f"{done.dropped} pruned in {done.seconds * 1_000:.0f} ms"
    )
    if done.failure is not None:
        raise DemoFailed(f"the flush failed: {done.failure}")


def _show(desk: Desk, key: bytes) -> Observation:
    """Print the memory and return an observation to recall: a rule of the user, if there is one."""
    with looking(desk, key) as lens:
        memory = reading.visible(lens.session, lens.leaf)
        named = {item.id: item for item in memory.observations}
        sources = [source for item in memory.observations for source in item.source_entry_ids]
        lines = {
            entry.id: _line_of(entry)
            for entry in reading.entries_on(lens.session, lens.leaf, dict.fromkeys(sources))
        }
    say("Reflections")
    for reflection in memory.reflections:
        supports = [one for one in reflection.supporting_observation_ids if one in named]
        say(f"  [{reflection.id}] {reflection.content}")
        say(f"      rests on {', '.join(supports) or 'pruned observations'}")
    say("Observations")
    for item in memory.observations:
        where = ", ".join(str(lines.get(source, "?")) for source in item.source_entry_ids)
        say(f"  [{item.id}] ({item.relevance}) {item.content}")
        say(f"      from line {where}")
    if not memory.observations or not memory.reflections:
        raise DemoFailed("there is no memory to show: please report this")
    critical = [item for item in memory.observations if item.relevance == "critical"]
    return (critical or list(memory.observations))[0]


def _recall(desk: Desk, key: bytes, chosen: Observation, sample: Path) -> None:
    with looking(desk, key) as lens:
        found = reading.recall_at(lens.session, lens.leaf, chosen.id)
    say(found.text)
    assert isinstance(found, RecalledObservation)
    source = found.source_entries[0]
    number = _line_of(source)
    row = msgspec.json.decode(sample.read_bytes().split(b"\n")[number - 1])
    written = str(row["message"]["content"]).encode()
    kept = str(source.message.content[0]["text"]).encode() if source.message else b""
    if kept != written:
        raise DemoFailed(f"the source of {chosen.id} differs from line {number} of the file")
    say()
    say(f"the source is byte-equal to line {number} of the file: {len(kept)} bytes")


def _compact(desk: Desk, key: bytes, provider: Counted) -> None:
    before = provider.n_turns
    done = requests.compact(desk, key)
    if done.failure is not None:
        raise DemoFailed(f"the compaction was refused: {done.failure}")
    n_turns = provider.n_turns - before
    say(
        f"compacted in {done.milliseconds:.0f} ms with {n_turns} model calls\n"
        f"{done.observations} observations and {done.reflections} reflections in "
        f"{done.summary_bytes:,} bytes stand for everything through line "
        f"{_line_named(desk, key, done.through)}"
    )
    if n_turns:
        raise DemoFailed("the compaction asked a model: please report this")


def _prove(settings: ProcessSettings) -> None:
    started = time.monotonic()
    rebuilt = rebuild(settings)
    say(
        f"rebuilt {rebuilt.rows} rows from {rebuilt.records} records in "
        f"{(time.monotonic() - started) * 1_000:.0f} ms: {rebuilt.n_differing} differ from before"
    )
    started = time.monotonic()
    with Desk(settings) as desk:
        found = verify_folder(desk.engine)
    say_verification(found, time.monotonic() - started)
    if not found.is_equal or rebuilt.n_differing:
        raise DemoFailed("the rebuilt state is not the one before: please report this")


def _line_of(entry: Entry) -> int:
    native = (entry.metadata or {}).get("native")
    line = native.get("line") if isinstance(native, dict) else None
    return line if isinstance(line, int) else 0


def _line_named(desk: Desk, key: bytes, entry_id: str | None) -> int:
    with looking(desk, key) as lens:
        entry = lens.session.entry(entry_id or "")
    return _line_of(entry) if entry is not None else 0


def _title(text: str) -> None:
    say()
    say(text)
    say("-" * len(text))
