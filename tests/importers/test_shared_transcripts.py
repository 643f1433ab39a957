"""Every real transcript: what is imported equals what a few lines of plain code count.

The files are not ours to commit: they are read from ``../shared``.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from ombus.importers import Imported, open_transcripts
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue

from tests.importers.reading import assert_accounted

Counts = dict[str, int]


def plain_rows(path: Path) -> tuple[list[JsonObject], int]:
    """Return the objects of a JSONL file and how many lines are none."""
    rows: list[JsonObject] = []
    lines = path.read_bytes().split(b"\n")
    for line in lines[:-1] if lines[-1] == b"" else lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            rows.append(value)
    return rows, len(lines) - (lines[-1] == b"") - len(rows)


def message_of(row: JsonObject) -> JsonObject:
    body = row.get("message")
    return body if isinstance(body, dict) else {}


def blocks_of(row: JsonObject) -> list[JsonObject]:
    content = message_of(row).get("content")
    return (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )


def count_pi(path: Path) -> Counts:
    rows, n_bad = plain_rows(path)
    bodies = [message_of(row) for row in rows]
    n_calls = sum(block.get("type") == "toolCall" for row in rows for block in blocks_of(row))
    custom = sum(row["type"] == "custom_message" for row in rows)
    return {
        "entries": len(rows) - 1,
        "user": sum(body.get("role") == "user" for body in bodies) + custom,
        "assistant": sum(body.get("role") == "assistant" for body in bodies),
        "tool": sum(body.get("role") == "toolResult" for body in bodies),
        "calls": n_calls,
        "results": sum(body.get("role") == "toolResult" for body in bodies),
        "skipped": n_bad,
        "duplicates": 0,
        "human": sum(body.get("role") == "user" for body in bodies),
    }


def count_claude(path: Path) -> Counts:
    rows, n_bad = plain_rows(path)
    seen: set[JsonValue] = set()
    users = tools = 0
    messages: set[JsonValue] = set()
    counts: Counter[str] = Counter()
    for row in rows:
        uuid, kind = row.get("uuid"), row.get("type")
        if kind is None or (kind in ("user", "assistant") and "content" not in message_of(row)):
            n_bad += 1
            continue
        if uuid is not None and uuid in seen:
            counts["duplicates"] += 1
        elif kind == "user":
            n_results = sum(block["type"] == "tool_result" for block in blocks_of(row))
            tools += n_results
            users += not n_results
        elif kind == "assistant":
            messages.add(message_of(row)["id"])
            counts["calls"] += sum(block["type"] == "tool_use" for block in blocks_of(row))
        elif kind == "attachment":
            counts["others"] += 1
        seen.add(uuid)
    return {
        "entries": users + tools + len(messages) + counts["others"],
        "user": users,
        "assistant": len(messages),
        "tool": tools,
        "calls": counts["calls"],
        "results": tools,
        "skipped": n_bad,
        "duplicates": counts["duplicates"],
    }


def count_codex(path: Path) -> Counts:
    rows, n_bad = plain_rows(path)
    items: list[JsonObject] = [row["payload"] for row in rows if row["type"] == "response_item"]  # type: ignore[misc]  # every such row has an object there
    kinds = Counter((item["type"], item.get("role")) for item in items)
    n_calls, n_results = kinds[("function_call", None)], kinds[("function_call_output", None)]
    return {
        "entries": len(items) - kinds[("reasoning", None)],
        "user": kinds[("message", "user")],
        "assistant": kinds[("message", "assistant")] + n_calls,
        "tool": n_results,
        "calls": n_calls,
        "results": n_results,
        "skipped": n_bad,
        "duplicates": 0,
        "human": kinds[("message", "user")] - 1,  # AGENTS.md
    }


def count_swe_agent(path: Path) -> Counts:
    history = json.loads(path.read_text())["history"]
    n_calls = sum("action" in row for row in history)
    n_results = sum(
        row["role"] == "user" and "action" in history[at - 1] for at, row in enumerate(history)
    )
    return {
        "entries": len(history),
        "user": sum(row["role"] == "user" for row in history) - n_results,
        "assistant": n_calls,
        "tool": n_results,
        "calls": n_calls,
        "results": n_results,
        "skipped": 0,
        "duplicates": 0,
    }


def count_openhands(path: Path) -> Counts:
    events = [event for line in path.open() for event in json.loads(line)["history"]]
    n_results = sum("observation" in event for event in events)
    actions = Counter(event.get("action") for event in events)
    n_calls = len(events) - n_results - actions["message"] - actions["finish"]
    return {
        "entries": len(events),
        "user": actions["message"],
        "assistant": n_calls + actions["finish"],
        "tool": n_results,
        "calls": n_calls,
        "results": n_results,
        "skipped": 0,
        "duplicates": 0,
    }


def count_web(path: Path) -> Counts:
    rows = json.loads(path.read_text())["loglines"]
    results = sum(block["type"] == "tool_result" for row in rows for block in blocks_of(row))
    summaries = sum(row.get("isCompactSummary", False) for row in rows)
    return {
        "entries": len(rows),
        "user": sum(row["type"] == "user" for row in rows) - results - summaries,
        "assistant": sum(row["type"] == "assistant" for row in rows),
        "tool": results,
        "calls": sum(block["type"] == "tool_use" for row in rows for block in blocks_of(row)),
        "results": results,
        "skipped": 0,
        "duplicates": 0,
    }


def count_prism(path: Path) -> Counts:
    rows, n_bad = plain_rows(path)
    roles = Counter(message_of(row).get("role") for row in rows)
    return {
        "entries": len(rows),
        "user": roles["user"],
        "assistant": roles["assistant"],
        "tool": 0,
        "calls": 0,
        "results": 0,
        "skipped": n_bad,
        "duplicates": 0,
    }


COUNTERS = {
    "anthropic-web/claude-web-session.json": count_web,
    "claude-code/cc-edge-cases.jsonl": count_claude,
    "claude-code/cc-redacted-thinking.jsonl": count_claude,
    "codex/codex-2026-interrupted-calls.jsonl": count_codex,
    "om-ledger/prism-om-ledger-fixture.jsonl": count_prism,
    "openhands/oh-resolver-output.jsonl": count_openhands,
    "pi/pi-v1-large-session.jsonl": count_pi,
    "pi/pi-v1-tiny.jsonl": count_pi,
    "pi/pi-v3-badline-custom-entries.jsonl": count_pi,
    "sweagent/swea-ctf-web.traj": count_swe_agent,
}


def test_every_file_has_a_counter(shared: Path) -> None:
    files = {str(path.relative_to(shared)) for path in shared.glob("*/*")}

    assert files == set(COUNTERS)


@pytest.mark.parametrize("name", COUNTERS)
def test_counts_equal_an_independent_count(shared: Path, name: str) -> None:
    transcripts = list(open_transcripts(shared / name, tenant="acme"))
    counted: Counter[str] = Counter()
    for transcript in transcripts:
        entries = [item.entry for item in transcript if isinstance(item, Imported)]
        report = transcript.report
        assert_accounted(transcript)
        assert_pairs(entries)
        assert report.forks == 0  # the forks in these files are parallel rows, not rewinds
        counted.update(
            {
                "entries": report.entries,
                "user": report.by_role["user"],
                "assistant": report.by_role["assistant"],
                "tool": report.by_role["tool"],
                "calls": report.calls,
                "results": report.results,
                "skipped": report.n_skipped,
                "duplicates": report.duplicates,
                "human": report.by_origin["human"],
            }
        )
    expected = COUNTERS[name](shared / name)

    assert {key: counted[key] for key in expected} == expected


@pytest.mark.parametrize("name", COUNTERS)
def test_each_text_is_the_files_text(shared: Path, name: str) -> None:
    """Recall gives back what the file says: every text is a string of the file, exactly."""
    strings = _strings_of(shared / name)
    for transcript in open_transcripts(shared / name, tenant="acme"):
        for item in transcript:
            if not isinstance(item, Imported) or item.entry.message is None:
                continue
            for block in item.entry.message.content:
                text = block.get("text", block.get("result", block.get("error")))
                if isinstance(text, str) and text:
                    assert text in strings


def _strings_of(path: Path) -> set[str]:
    if path.suffix == ".jsonl":
        waiting: list[JsonValue] = [*plain_rows(path)[0]]
    else:
        waiting = [json.loads(path.read_text())]
    strings: set[str] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            strings.add(value)
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
    return strings


def assert_pairs(entries: list[Entry]) -> None:
    """Every result comes after its call on its own chain."""
    parents = {entry.id: entry.parent for entry in entries}
    calls: dict[str, str] = {}
    for entry in entries:
        for block in entry.message.content if entry.message is not None else ():
            if block["type"] == "tool_call":
                calls[str(block["id"])] = entry.id
            elif block["type"] == "tool_result":
                at: str | None = entry.id
                while at is not None and at != calls[str(block["toolCallId"])]:
                    at = parents[at]
                assert at is not None


def test_the_reported_numbers_of_the_manifest(shared: Path) -> None:
    """Unanswered calls as measured when the files were collected."""
    measured = {
        "pi/pi-v1-large-session.jsonl": (391, 18),
        "codex/codex-2026-interrupted-calls.jsonl": (13, 5),
        "claude-code/cc-redacted-thinking.jsonl": (2, 1),
        "pi/pi-v1-tiny.jsonl": (2, 1),
    }
    for name, (n_calls, n_unanswered) in measured.items():
        for transcript in open_transcripts(shared / name, tenant="acme"):
            for _ in transcript:
                pass
            report = transcript.report
            assert (report.calls, report.calls - report.results) == (n_calls, n_unanswered)
