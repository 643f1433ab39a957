"""Generated mess: no file of any format makes an importer fail, and no row goes unaccounted."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from ombus.importers import FORMATS, Imported, open_transcripts
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue

from tests.importers.reading import assert_accounted, imported

ids = st.sampled_from(["a1", "a2", "a3", "a4", "b 5", "om:x", "L3", ""])
parents = st.none() | ids
words = st.sampled_from(
    ["", "fix it", "a\u2028b\r", "lone \ud83d", "<system-reminder>x</system-reminder> go", "😀"]
)
calls = st.sampled_from(["c1", "c2", "call|fc"])
odd: st.SearchStrategy[JsonValue] = st.sampled_from([None, 7, "x", [], {}, [1, "y", {}], True])


def often(usual: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    return st.one_of(usual, usual, usual, usual, odd)


def record(**fields: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    """An object of the fields, any of which may be missing or of an odd shape."""
    likely = {name: often(field) for name, field in fields.items()}
    whole = st.fixed_dictionaries({name: field for name, field in fields.items()})
    return st.one_of(whole, whole, st.fixed_dictionaries({}, optional=likely))


pi_blocks = st.lists(
    record(type=st.just("text"), text=words)
    | record(type=st.just("toolCall"), id=calls, name=words, arguments=odd)
    | record(type=st.just("image"), data=st.just("aGVsbG8="), mimeType=words),
    max_size=3,
)
pi_messages = record(
    role=st.sampled_from(
        ["user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary", "odd"]
    ),
    content=words | pi_blocks,
    toolCallId=calls,
    command=words,
    output=words,
    isError=st.booleans(),
)
pi_rows = st.one_of(
    record(type=st.just("session"), id=ids, version=st.integers(1, 3)),
    record(
        type=st.sampled_from(
            ["message"] * 5 + ["custom_message", "compaction", "custom", "label", "new"]
        ),
        id=ids,
        parentId=parents,
        message=pi_messages,
        content=words,
        customType=st.sampled_from(["om.observations.recorded", "x"]),
        data=odd,
        summary=words,
        firstKeptEntryId=ids,
        firstKeptEntryIndex=st.integers(-1, 9),
        details=odd,
        timestamp=st.sampled_from(["2026-05-01T08:00:00Z", "x", 1_777_000_000_000, -1]),
    ),
)
claude_blocks = st.lists(
    record(type=st.just("text"), text=words)
    | record(type=st.just("tool_use"), id=calls, name=words, input=odd)
    | record(type=st.just("tool_result"), tool_use_id=calls, content=words, is_error=odd)
    | record(type=st.just("thinking"), thinking=words, signature=words),
    max_size=3,
)
claude_rows = record(
    type=st.sampled_from(["user", "assistant"] * 4 + ["system", "attachment", "progress"]),
    uuid=ids,
    parentUuid=parents,
    logicalParentUuid=parents,
    sessionId=ids,
    isSidechain=st.sampled_from([False, False, False, True]),
    agentId=ids,
    isMeta=st.sampled_from([False, False, True]),
    isCompactSummary=st.sampled_from([False, False, True]),
    message=record(id=ids, content=words | claude_blocks, role=words, usage=odd),
    attachment=record(type=st.just("queued_command"), prompt=words | claude_blocks),
)
codex_items = record(
    type=st.sampled_from(
        [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "local_shell_call",
            "web_search_call",
            "odd",
        ]
    ),
    role=st.sampled_from(["user", "assistant", "developer"]),
    content=st.lists(record(type=st.just("input_text"), text=words), max_size=2),
    summary=odd,
    call_id=calls,
    name=words,
    arguments=words,
    output=words | odd,
)
codex_rows = codex_items | record(
    type=st.sampled_from(["session_meta", "response_item", "event_msg", "compacted", "odd"]),
    payload=codex_items,
)
run_rows = record(
    id=st.integers(0, 3),
    source=st.sampled_from(["user", "agent"]),
    action=st.sampled_from(["message", "run", "recall", "finish", "condensation", "odd"]),
    observation=st.sampled_from(["run", "recall", "error"]),
    args=record(content=words, command=words, image_urls=odd, summary=words),
    content=words,
    cause=st.integers(0, 3),
    tool_call_metadata=odd,
)
message_rows = record(
    role=st.sampled_from(["user", "assistant", "tool", "system", "odd"]),
    content=words | claude_blocks,
    text=words,
    parts=st.lists(record(text=words, functionCall=odd, functionResponse=odd), max_size=2),
    tool_calls=st.lists(record(id=calls, function=record(name=words, arguments=words))),
    tool_call_id=calls,
    function_call=odd,
    is_demo=st.booleans(),
    action=words,
    type=words,
)
gemini_rows = record(
    type=st.sampled_from(["init", "message", "tool_use", "tool_result", "result", "error"]),
    role=st.sampled_from(["user", "assistant"]),
    content=words,
    delta=st.booleans(),
    tool_id=calls,
    tool_name=words,
    parameters=odd,
    status=st.sampled_from(["error", "success"]),
    output=words,
    error=odd,
    session_id=ids,
)
own_rows = record(
    id=ids,
    sessionId=st.sampled_from(["s1", "s2"]),
    tenantId=st.just("t"),
    parentId=parents,
    kind=st.sampled_from(["message", "custom"]),
    schemaVersion=st.just(1),
    side=st.booleans(),
    message=record(role=words, content=st.lists(record(type=st.just("text"), text=words))),
    data=odd,
    origin=st.sampled_from(["human", "worker"]),
)
holders = st.sampled_from(["messages", "history", "loglines", "trajectory"]).flatmap(
    lambda name: record(**{name: st.lists(run_rows | message_rows | claude_rows, max_size=4)})
)
kinds: list[tuple[str, st.SearchStrategy[JsonValue]]] = [
    ("pi", pi_rows),
    ("claude-code", claude_rows),
    ("codex", codex_rows),
    ("openhands", run_rows),
    ("swe-agent", message_rows),
    ("messages", message_rows),
    ("gemini", gemini_rows),
    ("ombus", own_rows),
    ("messages", holders),
]
files = st.sampled_from(kinds).flatmap(
    lambda kind: st.tuples(
        st.sampled_from([kind[0], kind[0], None, *FORMATS]),
        st.lists(kind[1], min_size=1, max_size=12),
    )
)


def _plain(lines: list[bytes]) -> bytes:
    return b"\n".join(lines)


def _windows(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\r\n" for line in lines)


def _reversed(lines: list[bytes]) -> bytes:
    return b"\n".join(reversed(lines)) + b"\n"


def _cut(lines: list[bytes]) -> bytes:
    content = b"\n".join(lines)
    return content[: len(content) * 2 // 3]


def _with_garbage(lines: list[bytes]) -> bytes:
    return b"\xff\xfe{\n" + b"\n\n\x00\n[1]\n".join(lines)


def _document(lines: list[bytes]) -> bytes:
    return b"[\n" + b",\n".join(lines) + b"\n]"


def _utf16(lines: list[bytes]) -> bytes:
    return _plain(lines).decode("utf-8", "replace").encode("utf-16")


Messing = Callable[[list[bytes]], bytes]
messings: st.SearchStrategy[Messing] = st.sampled_from(
    [_plain, _windows, _reversed, _cut, _with_garbage, _document, _utf16]
)


@settings(max_examples=200)
@given(files, messings)
def test_any_mess_is_read_to_its_end(
    file: tuple[str | None, list[JsonValue]], mess: Messing
) -> None:
    format, values = file
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mess.jsonl"
        path.write_bytes(mess([json.dumps(value).encode() for value in values]))

        for transcript in open_transcripts(path, tenant="acme", format=format):
            items = list(transcript)
            entries = [item.entry for item in items if isinstance(item, Imported)]
            assert_accounted(transcript)
            assert_sound(entries)
            assert list(transcript) == items


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_pairs_survive_disorder(n_calls: list[int], random: Random) -> None:
    rows: list[JsonObject] = []
    parent: str | None = None

    def add(role: str, content: JsonValue, **fields: JsonValue) -> None:
        nonlocal parent
        entry_id = f"e{len(rows)}"
        body: JsonObject = {"role": role, "content": content, **fields}
        rows.append({"type": "message", "id": entry_id, "parentId": parent, "message": body})
        parent = entry_id

    for turn, n in enumerate(n_calls):
        add("user", f"turn {turn}")
        call: list[JsonValue] = [
            {"type": "toolCall", "id": f"c{turn}.{at}", "name": f"tool{at}", "arguments": {}}
            for at in range(n)
        ]
        add("assistant", call)
        for at in range(n):
            add("toolResult", f"result {turn}.{at}", toolCallId=f"c{turn}.{at}")
    random.shuffle(rows)
    kept = rows[: random.randint(1, len(rows))]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in kept))
        transcript, entries, _ = imported(path, format="pi")

    assert_sound(entries)
    blocks = [
        block for entry in entries if entry.message is not None for block in entry.message.content
    ]
    names = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_call"}
    results = [block for block in blocks if block["type"] == "tool_result"]
    assert transcript.report.calls == len(names)
    assert len(results) == sum("toolCallId" in json.dumps(row) for row in kept)
    for block in results:
        assert block["name"] == names.get(block["toolCallId"], "unknown")


def assert_sound(entries: list[Entry]) -> None:
    """Ids are unique and fit; every parent is there; no circle; every character can be written."""
    parents_by_id = {entry.id: entry.parent for entry in entries}
    assert len(parents_by_id) == len(entries)
    own = any((entry.metadata or {}).get("native") is None for entry in entries)
    for entry in entries:
        json.dumps(entry.data, ensure_ascii=False).encode()
        if entry.message is not None:
            json.dumps(entry.message.content, ensure_ascii=False).encode()
        if own:
            continue
        assert entry.id.isascii()
        assert 0 < len(entry.id) <= 200
        assert " " not in entry.id
        assert not entry.id.startswith("om:")
        at, steps = entry.id, 0
        while (parent := parents_by_id[at]) is not None:
            at, steps = parent, steps + 1
            assert steps <= len(entries)


def test_the_sound_check_can_fail() -> None:
    circle: list[JsonObject] = [{"id": "a", "parentId": "b"}, {"id": "b", "parentId": "a"}]
    native: JsonObject = {"native": {}}
    entries = [
        Entry(
            id=str(each["id"]),
            session_id="s",
            parent_id=str(each["parentId"]),
            kind="message",
            metadata=native,
        )
        for each in circle
    ]
    try:
        assert_sound(entries)
    except AssertionError:
        return
    raise AssertionError("a circle passed")
