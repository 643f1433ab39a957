"""Observer, reflector and dropper over HTTP with a real, tiny model: ``make test-model``.

The server forces the tool, so even a model of 135 million parameters makes calls; what it says in
them is its own. Nothing is asked of its quality. What must hold: every item it handed in was stored
or turned away with a count, and coverage moved on runs that ended well, and only on those.
"""

import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import structlog
from ombus.wiring import SystemClock
from ombus_schemas.codec import decode
from ombus_schemas.entries import SCHEMA_VERSION, Entry, Message
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.records import (
    ObservationsDropped,
    ObservationsRecorded,
    ReflectionsRecorded,
    record_of,
)
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.memory.reading import visible
from ombus_streams.memory.render import render_memory
from ombus_streams.providers.openai import OpenAI
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.roster import Fixed
from ombus_streams.runtime.scheduler import attempts_in
from ombus_streams.runtime.staff import Staff
from ombus_streams.runtime.usage import days, read_day

KEY = b"local/model"
STARTS_WITHIN_SECONDS = 120
TALK = (
    ("user", "Please use tabs for indentation in every Go file. That is a rule of this project."),
    ("assistant", "Understood. I formatted main.go with tabs and ran gofmt."),
    ("user", "The test TestParse fails with: expected 3, got 4. Please fix it."),
    ("assistant", "Fixed: the loop in parse.go read one item too many. All 12 tests pass now."),
    ("user", "Never push to the main branch. Open a pull request instead."),
)
SETTINGS: JsonObject = {
    "observation": {"messageTokens": 10_000},
    "reflection": {"observationTokens": 1},
    "dropper": {"targetTokens": 1},
    "agentMaxTurns": 1,
}
"""One turn a run: the server forces a call in every turn, so a run would never end by itself."""


def main() -> int:
    """Run the server and the workers; return 0 when everything holds."""
    model = Path(sys.argv[1])
    python = sys.argv[2]
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [
            python, "-m", "llama_cpp.server", "--model", str(model), "--host", "127.0.0.1",
            "--port", str(port), "--n_ctx", "4096", "--chat_format", "chatml-function-calling",
            "--n_threads", "2",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(port, server)
        return max(_remember(port, streams=False), _remember(port, streams=True))
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    started = time.monotonic()
    while time.monotonic() - started < STARTS_WITHIN_SECONDS:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode} before it listened")
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise SystemExit(f"the server does not listen after {STARTS_WITHIN_SECONDS} s")


def _remember(port: int, *, streams: bool) -> int:
    started = time.monotonic()
    provider = OpenAI(
        "smollm2",
        base_url=f"http://127.0.0.1:{port}/v1",
        name="llama.cpp",
        streams=streams,
        tool_choice="named",
        max_tokens=400,
        names_ids=True,
        timeout_seconds=600,
    )
    dispatch = Dispatch(SystemClock())
    roster = Fixed({"observer": provider, "reflector": provider, "dropper": provider})
    with (
        tempfile.TemporaryDirectory() as folder,
        structlog.testing.capture_logs() as events,
        closing(Engine(Path(folder), SystemClock(), Staff(roster, dispatch))) as engine,
    ):
        engine.append(_entries())
        engine.settle()
        records = [decode(each.value) for each in engine.log.of_key(KEY) if each.value]
        session = engine.processors[engine.log.partition_of(KEY)].session(KEY)
        leaf = session.leaf(session.head.default_segment)
        memory = visible(session, leaf)
        judged = [event for event in events if event["event"] == "run.judged"]
        failed = [event for event in events if event["event"] in ("run.failed", "run.refused")]
        store = engine.processors[engine.log.partition_of(KEY)].store
        workers = ("observer", "reflector", "dropper")
        slots = [(KEY, leaf.segment, worker) for worker in workers]
        reasons = [why for slot in slots if (why := attempts_in(store, slot).reason)]
        spent = [item for day in days(store) for item in read_day(store, day)]

    print(f"\n{'streamed' if streams else 'in one piece'}: {time.monotonic() - started:.0f} s")
    n_stored = _report(records)
    rejections: Counter[str] = Counter()
    for event in judged:
        rejections.update(event["rejections"])
    n_handed_in = sum(event["n_calls"] for event in judged)
    print(
        f"  failed runs: {Counter(str(event.get('failure', event['event'])) for event in failed)}"
    )
    for reason in reasons:
        print(f"  last failure: {reason}")
    print(f"  stored {n_stored} items of {n_handed_in} calls, turned away {dict(rejections)}")
    print(f"  acceptance rate {n_stored / max(1, n_handed_in):.0%} (no threshold)")
    for spender, cost in spent:
        print(f"  {spender.worker}: {cost.input_tokens} tokens in, {cost.output_tokens} out")
    print(render_memory(memory.observations, memory.reflections))
    return _verdict(records, len(judged))


def _report(records: list[Entry]) -> int:
    n_stored = 0
    for entry in records:
        found = record_of(entry)
        match found:
            case ObservationsRecorded(observations=items):
                print(f"  observer  covered {found.base} to {found.covers_up_to_id}: {len(items)}")
                n_stored += len(items)
            case ReflectionsRecorded(reflections=items):
                print(f"  reflector through {found.through}: {len(items)}")
                n_stored += len(items)
            case ObservationsDropped(observation_ids=ids):
                print(f"  dropper   of {found.base}: {len(ids)}")
                n_stored += len(ids)
            case _:
                pass
    return n_stored


def _verdict(records: list[Entry], n_judged: int) -> int:
    ours = [found for entry in records if (found := record_of(entry)) is not None]
    reached: str | None = None
    for found in ours:
        if isinstance(found, ObservationsRecorded):
            if found.base != reached:
                print(f"FAILED: {found.base} follows {reached}")
                return 1
            reached = found.covers_up_to_id
    asked = [found for found in ours if found.produced_by is not None and found.produced_by.model]
    if len(asked) != n_judged:
        print(f"FAILED: {len(asked)} records of {n_judged} runs that ended well")
        return 1
    kinds = {type(found).__name__ for found in ours}
    print(f"  records of {', '.join(sorted(kinds))}: every one of a run that ended well")
    return 0


def _entries() -> list[Entry]:
    entries = [
        _entry("s", None, side=True, data={"type": "om.settings.changed", "settings": SETTINGS})
    ]
    parent: str | None = None
    for number, (role, text) in enumerate(TALK):
        name = f"m{number}"
        block: JsonObject = {"type": "text", "text": text}
        entries.append(_entry(name, parent, message=Message(role=role, content=[block])))
        parent = name
    flush: JsonObject = {"type": "om.flush.requested"}
    return [*entries, _entry("f", parent, side=True, data=flush)]


def _entry(
    name: str,
    parent: str | None,
    *,
    message: Message | None = None,
    data: JsonObject | None = None,
    side: bool = False,
) -> Entry:
    return Entry(
        id=name,
        session_id="model",
        tenant_id="local",
        parent_id=parent,
        timestamp="2026-11-29T20:00:00.000Z",
        kind="message" if message is not None else "custom",
        schema_version=SCHEMA_VERSION,
        message=message,
        data=data,
        side=side,
    )


if __name__ == "__main__":
    sys.exit(main())
