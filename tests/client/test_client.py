"""The client over HTTP and in this process: writes, reads, tails, refusals."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ombus import Client, embedded, message
from ombus.client.errors import (
    BadRequest,
    Conflict,
    EntryRejected,
    Gone,
    NotFound,
    Unauthorized,
    Unavailable,
)

from tests.gateway.serving import running

Scene = Callable[[Client], Awaitable[None]]
SECONDS = 30


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Client]:
    with running(folder) as served:
        async with Client(served.url) as client:
            yield client


@pytest.fixture(params=["http", "in process"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scene], None]:
    """Run a scene with a client over each transport."""

    def run(scene: Scene) -> None:
        async def main() -> None:
            opened = over_http if request.param == "http" else embedded
            async with asyncio.timeout(SECONDS), opened(tmp_path / "data") as client:
                await scene(client)

        asyncio.run(main())

    return run


def test_a_host_appends_reads_recalls_and_steers(play: Callable[[Scene], None]) -> None:
    async def scene(client: Client) -> None:
        session = client.session("chat-1")
        for n in range(4):
            done = await session.append(message("user", f"The ferry {n} leaves at {n}:15."))
            assert done.status == "appended"
        async with session.run("r1"):
            dry = await session.compact(dry_run=True)
            assert dry.reason == "run_active"
        flushed = await session.flush()
        assert flushed.status == "completed"
        assert flushed.observations > 0
        context = await session.context(max_tokens=1_000)
        assert [block.title for block in context.blocks] == [
            "observational-memory",
            "recent-messages",
        ]
        view = (await session.view()).view["text"]
        assert isinstance(view, str)
        memory = view.split("## Observations")[1].split("[")[1].split("]")[0]
        recalled = (await session.recall(memory)).recalled
        assert recalled["found"] is True
        entries = (await session.entries()).entries
        page = await session.page(str(entries[0]["id"]), limit=1)
        assert page.page["found"] is True
        assert len((await session.branches()).branches) == 1
        assert (await session.rebuild()).messages == entries
        assert (await session.status()).status["coveredTo"] == entries[-1]["id"]
        await session.invalidate(str(entries[0]["id"]))
        assert "ferry 0" not in str((await session.context()).blocks)

    play(scene)


def test_what_was_sent_is_read_and_in_order(play: Callable[[Scene], None]) -> None:
    async def scene(client: Client) -> None:
        session = client.session("s")
        for n in range(150):
            await session.send(message("user", f"m{n}", id=f"m{n}"))
        await session.drain()
        entries = (await session.entries(limit=500)).entries
        assert [each["id"] for each in entries] == [f"m{n}" for n in range(150)]
        again = await session.append(message("user", "m7", id="m7"))
        assert again.status == "duplicate"

    play(scene)


def test_a_tail_brings_every_entry_once(play: Callable[[Scene], None]) -> None:
    async def scene(client: Client) -> None:
        session = client.session("s")
        await session.append(message("user", "first", id="first"))
        seen: list[object] = []

        async def follow() -> None:
            async for event in session.tail("start"):
                seen.append(event.data["id"])
                if event.data["id"] == "last":
                    return

        following = asyncio.create_task(follow())
        for n in range(20):
            await session.append(message("user", str(n), id=f"m{n}"))
        await session.append(message("user", "last", id="last"))
        await following
        assert seen == ["first", *(f"m{n}" for n in range(20)), "last"]

    play(scene)


def test_what_is_refused_is_a_typed_error(play: Callable[[Scene], None]) -> None:
    async def scene(client: Client) -> None:
        session = client.session("s")
        await session.append(message("user", "one", id="a"))
        with pytest.raises(EntryRejected) as rejected:
            await session.append({"kind": "nonsense"})
        assert rejected.value.code == "kind"
        await session.append(message("user", "won", id="b", expectedLeaf="a"))
        with pytest.raises(Conflict):
            await session.append(message("user", "lost", id="c", expectedLeaf="a"))
        with pytest.raises(NotFound):
            await client.session("nobody").status()
        with pytest.raises(Gone):
            await session.context(asOf="0123456789abcdef:0:1")
        with pytest.raises(BadRequest):
            client.session("no such name")

    play(scene)


def test_a_token_is_sent_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    async def main(url: str, token: str) -> None:
        async with Client(url, token) as client:
            await client.session("s").append(message("user", "one"))
        async with Client(url, "nonsense") as client:
            with pytest.raises(Unauthorized):
                await client.session("s").status()

    with running(tmp_path / "data") as served:
        asyncio.run(main(served.url, served.token("operator")))


def test_a_gateway_that_is_not_there_is_unavailable_after_a_while() -> None:
    async def main() -> None:
        async with Client("http://127.0.0.1:9", retry_seconds=0.2) as client:
            with pytest.raises(Unavailable):
                await client.session("s").append(message("user", "one"))

    asyncio.run(main())


def test_a_full_queue_makes_the_caller_wait() -> None:
    async def main() -> None:
        async with Client("http://127.0.0.1:9", retry_seconds=60, max_queued=2) as client:
            session = client.session("s")
            taken = 0

            async def send_all() -> None:
                nonlocal taken
                for n in range(10):
                    await session.send(message("user", str(n)))
                    taken += 1

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send_all(), 0.5)
            assert 2 <= taken <= 4
            await client.close()

    asyncio.run(main())
