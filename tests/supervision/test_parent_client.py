"""The client's side of a delegation, over a socket: the same answers, tools that never raise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from ombus.client import Client
from ombus.client.delegations import Delegations
from ombus.client.errors import BadRequest, NotFound
from ombus_schemas.delegating import TOOLS, DelegationAnswer
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.supervision import DelegationFinished, DelegationStarted, SupervisionEvent

from tests.gateway.serving import Running, running
from tests.supervision.telling import entry_of

TOML = "[supervision.children.scout]\nsession = true\n"


@asynccontextmanager
async def children(gateway: Running) -> AsyncIterator[Delegations]:
    async with Client(gateway.url) as client:
        yield client.session("boss").delegations


def say(gateway: Running, kind: Any, id: str, **members: Any) -> None:
    body: SupervisionEvent = kind(child_id="scout", delegation_id=id, epoch=1, **members)
    gateway.gateway.delegating.delegations().append([entry_of(body, "boss", "local")])


async def admitted(asked: Delegations, id: str) -> DelegationAnswer:
    found = await asked.wait(id, 0)
    while found.state == "requested":
        found = await asked.wait(id, 0.01)
    return found


def finish(gateway: Running, id: str) -> None:
    say(gateway, DelegationStarted, id, holder="test", lease_ms=60_000)
    say(gateway, DelegationFinished, id, status="completed", output="found")


def test_a_parent_asks_follows_waits_and_sums_up(tmp_path: Path) -> None:
    async def run(gateway: Running) -> None:
        async with children(gateway) as asked:
            first = await asked.delegate_async("scout", "look", id="ask-1", limits={"steps": 2})
            again = await asked.delegate_async("scout", "look", id="ask-1")
            assert again.delegation_id == first.delegation_id
            id = first.delegation_id
            assert (await admitted(asked, id)).limits["steps"] == 2
            assert not (await asked.wait(id, 0.05)).is_over
            finish(gateway, id)
            told = [each async for each in asked.subscribe("start", id)]
            assert [each.event["type"] for each in told][-1] == "delegation_finished"
            done = await asked.wait(id)
            assert (done.output, done.status) == ("found", "completed")
            assert not await asked.cancel(id)
            (row,) = (await asked.summary()).children
            assert (row.attempts, row.outcome) == (1, "completed")
            assert [node.delegation_id for node in (await asked.tree()).nodes] == [id]
            with pytest.raises(NotFound):
                await asked.wait("unknown", 0)
            with pytest.raises(BadRequest):
                await asked.delegate_async("scout", "other", id="ask-1")
            refused = await asked.delegate("nobody", "look")
            assert (refused.state, refused.reason) == ("rejected", "allow_list")

    with running(tmp_path, toml=TOML) as gateway:
        asyncio.run(run(gateway))


def test_leaving_the_block_a_parent_attends_in_ends_its_tasks_alone(tmp_path: Path) -> None:
    async def run(gateway: Running) -> None:
        async with children(gateway) as asked:
            async with asked.attending(lease_ms=5_000):
                task = (await asked.delegate_async("scout", "look")).delegation_id
                lasting = await asked.delegate_async("scout", "stay", lifetime="session")
                await admitted(asked, lasting.delegation_id)
                assert not (await asked.wait(task, 0)).is_over
            ended = await asked.wait(task)
            assert (ended.state, ended.reason) == ("cancelled", "parent_gone")
            assert not (await asked.wait(lasting.delegation_id, 0)).is_over

    with running(tmp_path, toml=TOML) as gateway:
        asyncio.run(run(gateway))


def test_tools_answer_a_model_and_refuse_what_their_schemas_refuse(tmp_path: Path) -> None:
    async def run(gateway: Running) -> None:
        async with children(gateway) as asked:
            spawned = await asked.call_tool("spawn_agent", {"childId": "scout", "input": "look"})
            id = str(spawned["delegationId"])
            await admitted(asked, id)
            pending = await asked.call_tool("wait_agent", {"delegationId": id}, wait_seconds=0)
            assert pending["status"] == "admitted"
            finish(gateway, id)
            waited = await asked.call_tool("wait_agent", {"delegationId": id})
            assert (waited["status"], waited["output"]) == ("completed", "found")
            ended = await asked.call_tool("cancel_agent", {"delegationId": id})
            assert ended == {"delegationId": id, "status": "terminal"}
            lasting: JsonObject = {
                "childId": "scout",
                "input": "x",
                "lifetime": "session",
                "mode": "sync",
            }
            spawned = await asked.call_tool("spawn_agent", lasting)
            assert spawned["status"] in ("requested", "admitted")
            n_nodes = len((await asked.tree()).nodes)
            for name, arguments in BAD:
                assert "error" in await asked.call_tool(name, arguments), (name, arguments)
            assert len((await asked.tree()).nodes) == n_nodes

    with running(tmp_path, toml=TOML) as gateway:
        asyncio.run(run(gateway))


BAD: tuple[tuple[str, JsonObject], ...] = (
    ("spawn_agent", {"childId": "scout"}),
    ("spawn_agent", {"childId": "scout", "input": ""}),
    ("spawn_agent", {"childId": "scout", "input": "x", "extra": 1}),
    ("spawn_agent", {"childId": "scout", "input": "x", "mode": "later"}),
    ("spawn_agent", {"childId": "scout", "input": "x", "budgetShare": 0}),
    ("spawn_agent", {"childId": "scout", "input": "x", "milestone": {"everyTurns": 0}}),
    ("spawn_agent", {"childId": "scout", "input": "x", "milestone": {"other": 1}}),
    ("wait_agent", {}),
    ("wait_agent", {"delegationId": "d", "extra": 1}),
    ("cancel_agent", {"delegationId": 7}),
)


def test_the_schemas_of_the_tools_are_closed_and_refuse_the_same() -> None:
    by_name = {tool.name: Draft202012Validator(tool.parameters) for tool in TOOLS}
    for name, arguments in BAD:
        assert list(by_name[name].iter_errors(arguments)), (name, arguments)
    good: JsonObject = {"childId": "scout", "input": "x", "milestone": {"everyTurns": 2}}
    assert not list(by_name["spawn_agent"].iter_errors(good))
    assert all(tool.parameters["additionalProperties"] is False for tool in TOOLS)
