"""Children behind a gateway, and a network between them that is cut by a proxy on loopback."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from ombus.client import Client
from ombus.client.child import ChildTask, Done, Offer, Standing, Work
from ombus.client.child_bus import GatewayBus
from ombus.client.children import Ended, serve_children
from ombus_schemas.bodies import MAX_COUNT
from ombus_schemas.jsontext import JsonObject

from tests.gateway.serving import Running, running
from tests.supervision.test_child import LEASE_MS, SHORT_MS, TIMEOUT_S
from tests.support.proxy import Proxy

HUGE = 10**29
TOML = """
[supervision.children.scout]
report = "milestones"
"""


def ask(gateway: Running, **said: Any) -> str:
    body = {"childId": "scout", "input": "look", "id": "ask-1", **said}
    answer = gateway.post("boss/delegations", body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["delegationId"])


def end_of(gateway: Running, delegation: str) -> dict[str, Any]:
    while not (found := gateway.get(f"boss/delegations/{delegation}", waitSeconds=5).json())[
        "isOver"
    ]:
        assert found["state"] != "rejected"
    end: dict[str, Any] = found
    return end


def leases(gateway: Running, delegation: str) -> list[str]:
    """Return who held the delegation, in order, as they named themselves."""
    supervision = gateway.gateway.delegating.delegations()
    told, _ = supervision.told(b"local/boss", 0, 1_000)
    claims = [each.event for each in told if each.event["type"] == "delegation_started"]
    return [str(each["holder"]).partition(":")[2] for each in claims]


async def served(
    url: str, work: Work, token: str | None = None, lease_ms: int = LEASE_MS
) -> list[Ended]:
    """Work on one delegation over HTTP."""
    seen: list[Ended] = []

    def watch(each: Offer | Ended) -> None:
        if isinstance(each, Ended):
            seen.append(each)

    async with Client(url, token, retry_seconds=0.2) as client:
        serving = serve_children(
            GatewayBus(client), "scout", work, lease_ms=lease_ms, max_tasks=1, watch=watch
        )
        await asyncio.wait_for(serving, TIMEOUT_S)
    return seen


async def look(task: ChildTask) -> str:
    await task.publish({"role": "assistant", "content": f"{task.input}, {task.offer.epoch}"})
    return f"attempt {task.offer.epoch}"


def test_a_child_behind_a_gateway_works_for_its_parent(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        delegation = ask(gateway, report="milestones")

        (ended,) = asyncio.run(served(gateway.url, look))

        assert ended.standing == "finished"
        assert end_of(gateway, delegation)["output"] == "attempt 1"
        entries = gateway.get(f"{delegation}-session/entries").json()["entries"]
        assert [each["kind"] for each in entries] == ["message", "message", "event"]


def test_a_child_that_raises_fails_its_delegation(tmp_path: Path) -> None:
    async def work(task: ChildTask) -> None:
        await task.publish({"kind": "compaction"})

    with running(tmp_path, toml=TOML) as gateway:
        delegation = ask(gateway)

        (ended,) = asyncio.run(served(gateway.url, work))

        assert (ended.standing, ended.reason) == ("failed", "rejected")
        assert end_of(gateway, delegation)["state"] == "failed"


def test_a_token_is_offered_what_its_sessions_are_for(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        operator = {"Authorization": f"Bearer {gateway.token('operator')}"}
        answer = gateway.post(
            "boss/delegations", {"childId": "scout", "input": "x"}, headers=operator
        )
        delegation = answer.json()["delegationId"]
        other = {"Authorization": f"Bearer {gateway.token('publisher', sessions=['mine-*'])}"}
        reader = {"Authorization": f"Bearer {gateway.token('reader')}"}
        path = "/v1/children/scout/offers"
        while not gateway.http.get(path, headers=operator).json()["offers"]:
            pass

        assert gateway.http.get(path, headers=other).json() == {"offers": []}
        assert gateway.http.get(path, headers=reader).status_code == 404
        claim = {"parent": "boss", "holder": "me", "epoch": 1, "leaseMs": 1_000}
        for headers in (other, reader):
            answer = gateway.post(f"{delegation}-session/lease/claim", claim, headers=headers)
            assert answer.status_code == 404
        token = gateway.token("publisher", sessions=["*-session"])
        (ended,) = asyncio.run(served(gateway.url, look, token))
        assert ended.standing == "finished"


def test_a_lease_is_ended_by_its_holder_alone(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        delegation = ask(gateway)
        while not gateway.http.get("/v1/children/scout/offers").json()["offers"]:
            pass

        def say(name: str, holder: str, epoch: int = 1, **said: Any) -> httpx.Response:
            body = {"parent": "boss", "holder": holder, "epoch": epoch, **said}
            return gateway.post(f"{delegation}-session/lease/{name}", body)

        failure: dict[str, Any] = {"reason": "crash", "error": "x"}
        assert say("claim", "A", leaseMs=60_000).json()["standing"] == "held"
        assert say("finish", "B", output="B's").json()["standing"] == "lost"
        assert say("fail", "B", **failure).json()["standing"] == "lost"
        assert say("claim", "B", 0, leaseMs=1).status_code == 400
        assert say("beat", "B", 0).status_code == 400
        assert say("finish", "B", 0).status_code == 400
        assert say("fail", "B", 0, **failure).status_code == 400
        assert gateway.get(f"boss/delegations/{delegation}").json()["state"] == "started"

        assert say("finish", "A", output="A's").json()["standing"] == "finished"
        assert say("finish", "A", output="again").json()["standing"] == "finished"
        assert end_of(gateway, delegation)["output"] == "A's"


def test_a_number_that_no_row_holds_stops_nobody(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        asked = {"childId": "scout", "input": "x", "limits": {"tokens": HUGE}}
        assert gateway.post("boss/delegations", asked).status_code == 400
        named = {"parentSessionId": "boss", "delegationId": "x", "childId": "scout", "depth": HUGE}
        entry = {
            "role": "user", "content": "x", "parentId": None, "metadata": {"delegation": named},
        }  # fmt: skip
        assert gateway.post("x-session/entries", {"entries": [entry]}).status_code == 200
        delegation = ask(gateway, report="milestones")

        async def count(task: ChildTask) -> str:
            await task.event("turn_started", turn=HUGE)
            usage: JsonObject = {"usage": {"totalTokens": HUGE}}
            await task.publish({"role": "assistant", "content": "7", "metadata": usage})
            return "7"

        (ended,) = asyncio.run(served(gateway.url, count))

        assert (ended.standing, ended.reason) == ("failed", "limit")
        assert end_of(gateway, delegation)["usage"] == {"totalTokens": MAX_COUNT}
        while gateway.get("boss/delegations").json()["nodes"][0].get("turn") != 1:
            pass
        other = ask(gateway, id="ask-2")
        assert asyncio.run(served(gateway.url, look))[0].standing == "finished"
        assert end_of(gateway, other)["output"] == "attempt 1"


@pytest.mark.parametrize("on_lost", ["takeover", "fail"])
def test_a_cut_network_costs_the_lease_and_never_makes_two_successes(
    tmp_path: Path, on_lost: str
) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        delegation = ask(gateway, onLost=on_lost)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        proxy = Proxy(port, int(gateway.url.rpartition(":")[2]))
        was_lost = threading.Event()
        offers: list[Offer] = []

        async def cut_off(task: ChildTask) -> str:
            offers.append(task.offer)
            await task.publish({"role": "assistant", "content": "before the cut"})
            await asyncio.to_thread(proxy.__exit__)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                was_lost.set()
                # A child that will not stop: what it says now comes too late.
                return "success of the one that was cut off"
            raise AssertionError("unreachable")

        async def both() -> tuple[list[Ended], list[Ended]]:
            proxy.__enter__()
            first = await served(f"http://127.0.0.1:{port}", cut_off, lease_ms=SHORT_MS)
            if on_lost == "fail":
                return first, []
            return first, await served(gateway.url, look)

        async def late() -> Standing:
            async with Client(gateway.url) as client:
                holder = str(leases(gateway, delegation)[0])
                return await GatewayBus(client).finish(offers[0], holder, Done(output="late"))

        first, second = asyncio.run(both())

        assert was_lost.is_set()
        assert [each.standing for each in first] == ["lost"]
        end = end_of(gateway, delegation)
        if on_lost == "fail":
            assert (end["state"], second) == ("failed", [])
        else:
            assert (end["state"], end["output"]) == ("finished", "attempt 2")
            assert [each.standing for each in second] == ["finished"]
        # The first one had been told nothing and speaks up again: nobody is told of two successes.
        assert asyncio.run(late()) == ("failed" if on_lost == "fail" else "lost")
        assert end_of(gateway, delegation) == end
