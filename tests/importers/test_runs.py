"""Runs of agents: SWE-agent, OpenHands, Gemini CLI."""

import json

from ombus.importers import open_transcripts
from ombus_schemas.jsontext import JsonObject

from tests.importers.conftest import Written
from tests.importers.reading import imported, links, parted, texts

HISTORY: list[JsonObject] = [
    {"role": "system", "content": "You are", "agent": "primary"},
    {"role": "user", "content": "demo", "is_demo": True},
    {"role": "user", "content": "Fix it"},
    {"role": "assistant", "content": "Look:\n```\nls\n```", "action": "ls\n", "thought": "Look:"},
    {"role": "user", "content": "README"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "t1", "function": {"name": "edit", "arguments": '{"p":1}'}}],
    },
    {"role": "tool", "content": [{"type": "text", "text": "edited"}], "tool_call_ids": ["t1"]},
]


def test_swe_agent_actions_are_calls_and_observations_results(written: Written) -> None:
    steps: list[JsonObject] = [{"action": "ls\n", "observation": "README", "messages": [{}]}]
    run = {
        "environment": "e",
        "trajectory": steps,
        "history": HISTORY,
        "info": {"exit_status": "ok"},
    }
    path = written(json.dumps(run, indent=2).encode(), name="run.traj")

    transcript, entries, _ = imported(path)

    assert transcript.format == "swe-agent"
    assert [entry.origin for entry in entries] == [
        "injected",
        "human",
        "model",
        "tool",
        "model",
        "tool",
    ]
    blocks = [message.content[-1] for entry in entries if (message := entry.message)]
    assert blocks[2]["arguments"] == {"command": "ls\n"}
    assert (blocks[3]["toolCallId"], blocks[3]["result"]) == (blocks[2]["id"], "README")
    assert (blocks[5]["name"], blocks[5]["result"]) == ("edit", "edited")
    assert transcript.report.left_out == {"demonstration": 1}
    assert (entries[0].metadata or {})["session"] == {"environment": "e", "exit_status": "ok"}
    assert (entries[0].metadata or {})["timestampQuality"] == "missing"


def test_swe_agent_steps_serve_without_a_history(written: Written) -> None:
    steps: list[JsonObject] = [{"action": "ls", "observation": "x", "response": "look"}]
    path = written(json.dumps({"trajectory": steps, "info": {}}).encode())

    transcript, entries, _ = imported(path, format="swe-agent")

    assert links(entries) == {"L1.1": None, "L1": "L1.1"}
    assert transcript.report.calls == transcript.report.results == 1


def test_openhands_runs_are_sessions_and_pair_by_cause(written: Written) -> None:
    history: list[JsonObject] = [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "You are"}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": "Fix it"}},
        {"id": 2, "source": "user", "action": "recall", "args": {"query": "Fix it"}},
        {"id": 3, "source": "environment", "observation": "recall", "content": "", "cause": 2},
        {
            "id": 4,
            "timestamp": "2026-05-01T08:00:00.123456",
            "source": "agent",
            "action": "run",
            "args": {"command": "make", "thought": "Build."},
            "tool_call_metadata": {"function_name": "execute_bash", "tool_call_id": "x"},
        },
        {"id": 5, "source": "agent", "action": "read", "args": {"path": "a", "thought": ""}},
        {
            "id": 6,
            "source": "agent",
            "observation": "run",
            "content": "boom",
            "extras": {"metadata": {"exit_code": 2}},
            "cause": 4,
        },
        {"id": 7, "source": "agent", "observation": "error", "content": "no file", "cause": 5},
        {"id": 8, "source": "agent", "action": "finish", "args": {"final_thought": "Done."}},
    ]
    path = written(
        {"instance_id": "repo__1", "history": history},
        b'{"instance_id": "cut", "history": [{"action": "message", "content": "hello"}, {"acti',
        {"instance_id": "repo__2", "history": history[:2]},
        name="output.jsonl",
    )

    runs = list(open_transcripts(path, tenant="acme"))
    (entries, _), (cut, lost), (last, _) = map(parted, runs)

    assert [run.session_id for run in runs][::2] == ["repo__1", "repo__2"]
    assert [entry.kind for entry in entries[2:4]] == ["metadata", "metadata"]
    blocks = [message.content[-1] for entry in entries[4:8] if (message := entry.message)]
    assert blocks[0] == {
        "type": "tool_call",
        "id": "e4",
        "name": "execute_bash",
        "arguments": {"command": "make"},
    }
    assert (blocks[2]["toolCallId"], blocks[2]["result"]) == ("e4", "boom")
    assert (blocks[3]["toolCallId"], blocks[3]["error"]) == ("e5", "no file")
    assert (entries[6].metadata or {})["exitCode"] == 2
    assert (entries[4].metadata or {})["timestampQuality"] == "naive"
    assert texts(entries[8]) == ["Done."]
    assert texts(cut[0]) == ["hello"]
    assert [item.line for item in lost] == [2]
    assert len(last) == 2


def test_openhands_without_ids_pairs_by_order(written: Written) -> None:
    history: list[JsonObject] = [
        {"action": "message", "content": "Fix it", "images_urls": None},
        {"action": "run", "command": "ls", "thought": "Look.", "is_confirmed": "confirmed"},
        {"observation": "run", "content": "README", "exit_code": 0, "command": "ls"},
        {"action": "message", "content": "Which one?", "wait_for_response": True},
        {"action": "message", "content": "The first."},
        {"action": "finish", "outputs": {}, "thought": "Done."},
    ]
    issue: JsonObject = {"owner": "o", "repo": "r", "number": 5}
    path = written({"issue": issue, "history": history})

    transcript, entries, _ = imported(path)

    assert transcript.session_id == "o-r-5"
    assert [entry.origin for entry in entries] == [
        "human",
        "model",
        "tool",
        "model",
        "human",
        "model",
    ]
    call, result = entries[1].message, entries[2].message
    assert call is not None
    assert result is not None
    assert call.content[1]["arguments"] == {"command": "ls"}
    assert result.content[0]["toolCallId"] == call.content[1]["id"]


def test_gemini_deltas_are_one_message(written: Written) -> None:
    path = written(
        {"type": "error", "ts": "2026-05-01T08:00:00.000Z", "message": "no index"},
        {"type": "init", "session_id": "g1", "model": "gemini", "timestamp": ""},
        {"type": "message", "role": "user", "content": "hi", "timestamp": ""},
        {"type": "message", "role": "assistant", "content": "Let ", "delta": True},
        {"type": "message", "role": "assistant", "content": "me.\n", "delta": True},
        {"type": "tool_use", "tool_name": "read", "tool_id": "t1", "parameters": {"p": 1}},
        {
            "type": "tool_result",
            "tool_id": "t1",
            "status": "error",
            "error": {"type": "x", "message": "gone"},
        },
        {"type": "message", "role": "assistant", "content": "Gone.", "delta": True},
        {"type": "result", "status": "success", "stats": {}},
    )

    transcript, entries, _ = imported(path)

    assert (transcript.format, transcript.session_id) == ("gemini", "g1")
    assert [texts(entry) for entry in entries if entry.origin == "model"][::2] == [
        ["Let me.\n"],
        ["Gone."],
    ]
    failed = entries[4].message
    assert failed is not None
    assert failed.content[0] == {
        "type": "tool_result",
        "toolCallId": "t1",
        "name": "read",
        "error": "gone",
    }
    assert (transcript.report.merged, transcript.report.n_left_out) == (2, 1)
