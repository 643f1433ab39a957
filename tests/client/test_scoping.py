"""Work scopes through the client, over HTTP and in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from ombus import Client, embedded, message
from ombus.client.errors import BadRequest, ScopeLimit, ScopeRefused

from tests.client.test_client import over_http

Scene = Callable[[Client], Awaitable[None]]
SECONDS = 60


@pytest.fixture(params=["http", "in process"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        async def main() -> None:
            opened = over_http if request.param == "http" else embedded
            async with asyncio.timeout(SECONDS), opened(tmp_path / "data") as client:
                await scene(client)

        asyncio.run(main())

    return run


def test_memory_is_bound_to_the_scope_it_was_made_in(play: Callable[[Scene], None]) -> None:
    async def scene(client: Client) -> None:
        session = client.session("chat")
        await session.append(message("user", "We decided that the ferry leaves at 7:15."))
        await session.flush()
        async with session.with_work_scope("plan", label="The plan"):
            await session.append(message("user", "We decided that the pier is number 4."))
            await session.append(message("user", "The weather is fine."))
            await session.flush()
            inside = await session.context()
            assert "The plan" in inside.blocks[0].content
            assert "pier is number 4" in inside.blocks[0].content
            assert "7:15" not in inside.blocks[0].content
        outside = await session.context()
        assert "pier is number 4" not in outside.blocks[0].content
        there = await session.scope.memory("plan")
        (item,) = [each for each in there.observations if "pier" in str(each["content"])]
        assert (await session.recall(str(item["id"]))).recalled["found"] is True
        listed = await session.scope.list(binds=True)
        assert f"om:{item['id']}" in (listed.binds or {})["plan"]
        assert listed.stack == ("session",)

    play(scene)


def test_what_a_record_has_bound_by_itself_is_unbound_and_bound_again(
    play: Callable[[Scene], None],
) -> None:
    async def scene(client: Client) -> None:
        session = client.session("chat")
        await session.append(message("user", "Hello."))
        async with session.with_work_scope("plan"):
            await session.append(message("user", "We decided that the pier is number 4."))
            await session.flush()
            (item,) = (await session.scope.memory()).observations
            ref = f"om:{item['id']}"
            assert (await session.scope.bind("plan", [ref])).id is None
            await session.scope.unbind("plan", [ref])
            assert (await session.scope.memory()).observations == ()
            assert (await session.scope.unbind("plan", [ref])).id is None
            await session.scope.bind("plan", [ref])
            assert len((await session.scope.memory()).observations) == 1

    play(scene)


def test_a_scope_is_left_once_whatever_the_block_does(play: Callable[[Scene], None]) -> None:
    async def scene(client: Client) -> None:
        session = client.session("chat")
        await session.append(message("user", "Hello."))
        with pytest.raises(ZeroDivisionError):
            async with session.with_work_scope("plan"):
                raise ZeroDivisionError
        assert (await session.scope.list()).stack == ("session",)
        async with session.with_work_scope("plan"):
            await session.scope.open("part", parent="plan")
            await session.scope.enter("part")
        # Another scope was on top: the block has left nobody else's.
        assert (await session.scope.list()).stack == ("session", "plan", "part")
        await session.scope.leave()
        await session.scope.close("plan")
        with pytest.raises(ScopeRefused):
            async with session.with_work_scope("plan"):
                raise AssertionError

    play(scene)


def test_refusals_are_typed(play: Callable[[Scene], None]) -> None:
    async def scene(client: Client) -> None:
        session = client.session("chat")
        await session.append(message("user", "Hello."))
        with pytest.raises(BadRequest):
            await session.scope.open("no id")
        with pytest.raises(ScopeRefused):
            await session.scope.enter("nowhere")
        with pytest.raises(ScopeLimit):
            await session.scope.open("long", label="x" * 600)
        parent = None
        for n in range(8):
            await session.scope.open(f"d{n}", parent=parent)
            parent = f"d{n}"
        with pytest.raises(ScopeLimit):
            await session.scope.open("too-deep", parent=parent)

    play(scene)
