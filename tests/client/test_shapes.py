"""Messages of agent frameworks become entries that the gateway takes, and keep every word."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ombus import embedded
from ombus.client.shapes import from_claude_agent, from_langchain, from_openai_agents
from ombus_schemas.jsontext import JsonObject

CALL = {"type": "tool_call", "id": "c1", "name": "tides", "arguments": {"pier": 7}}
RESULT = {"type": "tool_result", "toolCallId": "c1", "name": "tides", "result": "high"}


@dataclass
class LangChainMessage:
    """As ``langchain_core.messages`` has them."""

    type: str
    content: Any
    id: str | None = None
    tool_calls: list[Any] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    status: str = "success"


LANGCHAIN = [
    LangChainMessage("system", "Be brief."),
    LangChainMessage("human", " Is the tide high?\n", id="h1"),
    LangChainMessage(
        "ai",
        [{"type": "text", "text": "I look."}],
        tool_calls=[{"name": "tides", "args": {"pier": 7}, "id": "c1"}],
    ),
    LangChainMessage("tool", "high", tool_call_id="c1", name="tides"),
]
OPENAI = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": " Is the tide high?\n"}]},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look."}],
    },
    {"type": "function_call", "call_id": "c1", "name": "tides", "arguments": '{"pier": 7}'},
    {"type": "function_call_output", "call_id": "c1", "output": "high"},
]


@dataclass
class TextBlock:
    text: str


@dataclass
class ToolUseBlock:
    id: str
    name: str
    input: dict[str, Any]


@dataclass
class ToolResultBlock:
    tool_use_id: str
    content: Any
    is_error: bool | None = None


@dataclass
class UserMessage:
    content: Any


@dataclass
class AssistantMessage:
    content: list[Any]
    model: str


@dataclass
class ResultMessage:
    duration_ms: int


CLAUDE = [
    UserMessage(" Is the tide high?\n"),
    AssistantMessage([TextBlock("I look."), ToolUseBlock("c1", "tides", {"pier": 7})], "claude"),
    UserMessage([ToolResultBlock("c1", [{"type": "text", "text": "high"}])]),
    ResultMessage(12),
]


def blocks(entries: list[JsonObject]) -> list[tuple[str, JsonObject]]:
    found: list[tuple[str, JsonObject]] = []
    for entry in entries:
        message = entry["message"]
        assert isinstance(message, dict)
        content = message["content"]
        assert isinstance(content, list)
        found += [(str(message["role"]), each) for each in content if isinstance(each, dict)]
    return found


Shape = tuple[Callable[[Iterable[object]], list[JsonObject]], Sequence[object]]
SHAPES: dict[str, Shape] = {
    "langchain": (from_langchain, LANGCHAIN),
    "openai agents": (from_openai_agents, OPENAI),
    "claude agent": (from_claude_agent, CLAUDE),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_word_call_and_result_is_kept(name: str) -> None:
    convert, messages = SHAPES[name]
    found = [each for each in blocks(convert(messages)) if each[0] != "system"]
    assert found == [
        ("user", {"type": "text", "text": " Is the tide high?\n"}),
        ("assistant", {"type": "text", "text": "I look."}),
        ("assistant", CALL),
        ("tool", RESULT),
    ]


@pytest.mark.parametrize("name", SHAPES)
def test_the_gateway_takes_them(name: str, tmp_path: Path) -> None:
    convert, messages = SHAPES[name]

    async def main() -> None:
        async with embedded(tmp_path / "data") as client:
            session = client.session("s")
            for entry in convert(messages):
                assert (await session.append(entry)).status == "appended"
            context = await session.context()
            assert "Is the tide high?" in context.blocks[-1].content

    asyncio.run(main())


def test_an_error_of_a_tool_is_one() -> None:
    failed = LangChainMessage("tool", "no pier", tool_call_id="c1", name="tides", status="error")
    (only,) = blocks(from_langchain([failed]))
    assert only[1]["error"] == "no pier"


def test_dumped_langchain_messages_are_read_as_well() -> None:
    dumped = [{"type": "human", "data": {"content": "hi", "id": "h1", "type": "human"}}]
    (entry,) = from_langchain(dumped)
    assert entry["id"] == "h1"
    assert blocks([entry]) == [("user", {"type": "text", "text": "hi"})]
