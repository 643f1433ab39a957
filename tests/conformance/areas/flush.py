"""``flush``: the reference's flush over one session and scripted workers (S16).

Asks for ``respect_thresholds=True``, ``prompt="reference"`` and ``report_rejections=False``
(design.md section 12, rows 18 and 20). Row 17: our records hang on a chain entry, the reference's
on the record before them; ``parent`` is what stands before a record in the list.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

import msgspec
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import resolve_settings
from ombus_streams.providers.scripted import Scripted
from ombus_streams.runtime.flush import MemoryFlush
from ombus_streams.runtime.flush_port import FlushResult, Stage, Worker, bounds_turns, limits_of

from tests.conformance.areas.workers import script
from tests.conformance.cases import Result, UnknownOp, entries_of, secrets_of

_STAGES: tuple[Stage, ...] = ("observation", "reflection", "dropper")


class _Session:
    """A session in memory, which numbers what is appended and remembers it."""

    session_id = "s1"

    def __init__(self, entries: list[Entry], is_run_active: bool) -> None:
        self._entries, self._is_run_active = entries, is_run_active
        self.appended: list[JsonValue] = []

    def entries(self) -> Sequence[Entry]:
        return tuple(self._entries)

    def append(self, data: JsonObject, anchor: str | None) -> None:
        shown: JsonObject = {"kind": "custom", "data": data}
        if self._entries:
            shown["parent"] = shown["expectedParentId"] = self._entries[-1].id
        self.appended.append(shown)
        entry = Entry(
            id=f"<new{len(self.appended)}>",
            session_id=self.session_id,
            kind="custom",
            parent_id=anchor,
            data=data,
            side=True,
        )
        self._entries.append(entry)

    def has_active_run(self) -> bool:
        return self._is_run_active


def run(case: JsonObject) -> Result:
    """Flush as often as the case says."""
    if case["op"] != "flush":
        raise UnknownOp(case["op"])
    options = cast(JsonObject, case["options"])
    settings = resolve_settings(
        cast("JsonObject | None", options.get("settings")),
        cast("JsonObject | None", options.get("overrides")),
    )
    session = _Session(entries_of(case["entries"]), options.get("runActive") is True)
    scripts = cast("dict[str, JsonObject]", case["scripts"])
    providers = {stage: _provider(scripts, stage) for stage in _STAGES}
    flush = MemoryFlush(
        session,
        {stage: _worker(scripts[stage], providers[stage]) for stage in _STAGES if stage in scripts},
        lambda: settings,
        now=lambda: "<now>",
        limits=limits_of(options),
        bounds_turns=bounds_turns(options),
        secrets=secrets_of(options.get("secrets")),
        session_model=options.get("sessionModel"),
        prompt="reference",
        report_rejections=False,
        respect_thresholds=True,
    )
    asked = cast(JsonObject, case.get("flushOptions", {}))
    rebuild = asked.get("fullReflectionRebuild") is True
    results = asyncio.run(_flushes(flush, int(cast(int, case["flushes"])), rebuild))
    status = flush.status()
    shown: JsonObject = {"inFlight": status.is_in_flight}
    if status.last_error is not None:
        shown["lastError"] = "{{ERROR}}" if _is_ours(status.last_error) else status.last_error
    return {
        "results": list(results),
        "status": shown,
        "appended": session.appended,
        "providerTurns": {stage: len(providers[stage].requests) for stage in _STAGES},
        "observerPrompt": _prompt(providers["observation"]),
        "reflectorPrompt": _prompt(providers["reflection"]),
        "dropperPrompt": _prompt(providers["dropper"]),
    }


async def _flushes(flush: MemoryFlush, count: int, rebuild: bool) -> list[JsonObject]:
    return [_result(await flush.flush(rebuild)) for _ in range(count)]


def _result(result: FlushResult) -> JsonObject:
    shown: JsonObject = msgspec.to_builtins(result)
    return {key: value for key, value in shown.items() if value is not None}


def _provider(scripts: dict[str, JsonObject], stage: Stage) -> Scripted:
    return Scripted(script(scripts.get(stage, {}).get("turns", [])))


def _worker(said: JsonObject, provider: Scripted) -> Worker:
    return Worker(
        provider=provider,
        model=None if said.get("noModel") is True else {"provider": "mock", "model": "m"},
        require_explicit_model=said.get("requireExplicitModel") is True,
        has_credentials=said.get("missingCredentials") is not True,
    )


def _is_ours(message: str) -> bool:
    return message.startswith(("Observational memory", "Unknown observational"))


def _prompt(provider: Scripted) -> JsonValue:
    if not provider.requests:
        return None
    content = cast("list[JsonObject]", provider.requests[-1].messages[1]["content"])
    return content[0]["text"]
