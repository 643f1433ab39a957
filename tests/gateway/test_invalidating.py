"""Invalidation over HTTP: effective at once, on every fork, through every gateway and tool."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from ombus import Client
from ombus.mcp import answers
from ombus_schemas.jsontext import JsonObject

from tests.gateway.serving import Running, running
from tests.gateway.test_reading import LOW, read_tail

WORD = "marmalade"
PATHS = (
    "entries",
    "context",
    "rebuild",
    "view",
    "view?mode=full",
    "status",
    "branches",
    "pages?cursor=m1",
    "pages?cursor=m1&direction=forward",
    "scopes/memory?include=lineage",
    "scopes?binds=true",
)


class Talk:
    """A session with a secret in it, a compaction over it and a fork behind it."""

    def __init__(self, served: Running, name: str) -> None:
        self.served, self.name = served, name
        said = [
            {
                "id": "m0",
                "role": "user",
                "content": f"We decided: {WORD} must be on the 7:15 ferry.",
            }
        ]
        said += [
            {"id": f"m{n}", "role": "user", "content": f"Ferry {n} leaves at {n}:15."}
            for n in range(1, 6)
        ]
        assert served.post(f"{name}/entries", {"entries": said}).status_code == 200
        assert served.post(f"{name}/flush", {}).json()["observations"] > 0
        assert served.post(f"{name}/compact", {}).json()["status"] == "completed"
        fork = {"id": "fork", "parentId": "m5", "role": "user", "content": "Or the 8:15?"}
        other = {"id": "other", "parentId": "m5", "role": "user", "content": "Or the 9:15?"}
        done = served.post(f"{name}/entries", {"entries": [fork, other]})
        self.before = served.get(f"{name}/view", atLeast=done.json()["position"]).json()
        text = self.before["view"]["text"]
        line = next(line for line in text.splitlines() if WORD in line)
        self.memory = line.split("[")[1].split("]")[0]

    def ask(self, path: str, **params: str) -> httpx.Response:
        return self.served.http.get(f"/v1/sessions/{self.name}/{path}", params=params)

    def invalidate(self, *ids: str, **said: Any) -> dict[str, Any]:
        body = {"ids": [*ids], "reason": "revoked", **said}
        answer = self.served.post(f"{self.name}/invalidations", body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def test_no_gateway_and_no_fork_shows_what_was_invalidated(tmp_path: Path) -> None:
    with (
        running(tmp_path / "data", toml=LOW) as first,
        running(tmp_path / "data", toml=LOW, folds=False) as second,
    ):
        talk = Talk(first, "ferry")
        beside = f"/v1/sessions/{talk.name}"
        assert WORD in second.http.get(f"{beside}/memories/{talk.memory}").text
        done = talk.invalidate("m0")
        assert done["hidden"] == 1
        position = talk.before["position"]
        for served in (first, second):
            for path in (*PATHS, f"memories/{talk.memory}"):
                for where in (
                    {"leaf": "fork"},
                    {"leaf": "other"},
                    {"leaf": "m5"},
                    {"asOf": position},
                ):
                    mark = "&" if "?" in path else "?"
                    query = "&".join(f"{key}={value}" for key, value in where.items())
                    answer = served.http.get(f"{beside}/{path}{mark}{query}")
                    assert answer.status_code == 200, answer.text
                    assert WORD not in answer.text, (path, where)
            tail = read_tail(served, talk.name, done["position"])
            assert WORD not in tail
            assert '"withheld":true' in tail


def test_no_tool_of_mcp_tells_what_was_invalidated(tmp_path: Path) -> None:
    async def told(url: str, memory: str) -> str:
        async with Client(url) as client:
            session = client.session("ferry")
            given: JsonObject = {"id": memory, "cursor": None, "limit": None, "direction": None,
                     "detail": None, "sessionId": None}  # fmt: skip
            found = [
                await answers.recall(session, given, None),
                await answers.recall(session, {**given, "id": None, "cursor": "m1"}, None),
                await answers.status(session),
                await answers.view(session, "full"),
                await answers.context(session, None),
            ]
            return repr(found)

    with running(tmp_path / "data", toml=LOW) as served:
        talk = Talk(served, "ferry")
        assert WORD in asyncio.run(told(served.url, talk.memory))
        talk.invalidate("m0")
        assert WORD not in asyncio.run(told(served.url, talk.memory))


def test_the_next_compaction_says_nothing_of_it(tmp_path: Path) -> None:
    with running(tmp_path / "data", toml=LOW) as served:
        talk = Talk(served, "ferry")
        done = talk.invalidate("m0")
        more = [{"role": "user", "content": f"Pier {n} is closed."} for n in range(6)]
        served.post("ferry/entries", {"entries": more})
        assert served.post("ferry/flush", {}).json()["status"] == "completed"
        assert served.post("ferry/compact", {}).json()["status"] == "completed"
        assert WORD not in talk.ask("rebuild").text
        last = talk.ask("status").headers["ombus-position"]
        log, partition, offset = last.split(":")
        tail = read_tail(served, "ferry", f"{log}:{partition}:{int(offset) - 1}")
        after = tail.split(f"id: {done['position']}")[1]
        assert "compaction" in after
        assert WORD not in after


def test_the_same_request_invalidates_once_and_says_the_same(tmp_path: Path) -> None:
    with running(tmp_path / "data", toml=LOW) as served:
        talk = Talk(served, "ferry")
        first = talk.invalidate("m0", "nobody", id="gone", hold=True)
        again = talk.invalidate("m0", "nobody", id="gone", hold=True)
        assert (first["hidden"], first["unknown"]) == (again["hidden"], again["unknown"])
        assert first["unknown"] == ["nobody"]
        listed = talk.ask("invalidations").json()["invalidations"]
        assert listed == [
            {"id": "gone", "reason": "revoked", "ids": ["m0", "nobody"], "hold": True}
        ]


@pytest.mark.parametrize("said", [{"ids": []}, {"ids": ["m0"], "reason": "because"}, {}])
def test_what_is_no_invalidation_is_refused(served: Running, said: dict[str, Any]) -> None:
    served.append("plain", "one")
    answer = served.post("plain/invalidations", {"reason": "revoked", **said})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
