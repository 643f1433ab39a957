"""What is invalidated where it was said is shared with nobody: on no fork, by no read, no tool."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from mcp import Client as McpClient
from ombus import Client
from ombus.mcp.server import memory_server
from ombus_schemas.entries import Entry
from ombus_schemas.ids import observation_id, reflection_id, session_key
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.shared import SharedMemory
from ombus_streams.memory.shared_rows import SharedBranch, shared_branch

from tests.gateway.serving import Running, running
from tests.scopes.fleet import (
    AT,
    SCOPE,
    TENANT,
    Owner,
    SharedFolder,
    asking,
    marker,
    sharing,
)
from tests.scopes.test_http import TOML as SHARING
from tests.scopes.test_http import at_work, change

TOML = f"""{SHARING}
[observational-memory.context]
recentMessages = 1
"""
REASONS = ("revoked", "corrected", "deleted")
NOTHING: frozenset[str] = frozenset()


class Shared(SharedFolder):
    """Sessions ``owner``, ``peer`` and ``reader``, all granted.

    Owner and peer have a reflection over their marker, a fork on which the marker is dropped, and
    one on which it is not.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name in ("owner", "peer"):
            self.put([*sharing(name), *_derived(name)])
        self.put(sharing("reader"))
        owner = Owner(self.log, "owner")
        owner.take()
        owner.grant("reader", "peer")

    def put(self, entries: list[Entry]) -> None:
        self.engine.append(entries)
        while self.engine.fold():
            pass

    def invalidate(self, name: str, reason: str) -> None:
        body: JsonObject = {"type": "om.sources.invalidated", "ids": ["m1"], "reason": reason}
        self.put([_custom(name, "gone", None, body)])

    def stand_on(self, name: str, fork: str) -> None:
        """Say something on this fork: it is the one that is read from now on."""
        last = msgspec.structs.replace(sharing(name)[0], id=f"on-{fork}", parent_id=fork)
        self.put([last])

    def read(self, name: str) -> SharedMemory:
        """Read as a recall of this session's marker does."""
        memory_id = observation_id(marker(name), ["m1"])
        return self.reads.resolve(asking(self.engine, "reader", "owner", memory_id=memory_id))

    def branches_of(self, name: str) -> list[SharedBranch]:
        """Return what each leaf gives."""
        memory_id = observation_id(marker(name), ["m1"])
        with self.engine.reading(session_key(TENANT, name)) as live:
            session = live.session
            leaves = [session.leaf(segment) for segment in session.segments()]
            return [shared_branch(session, leaf, SCOPE, memory_id) for leaf in leaves]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    found = Shared(tmp_path)
    yield found
    found.close()


def _custom(name: str, entry_id: str, parent: str | None, body: JsonObject) -> Entry:
    return Entry(
        id=entry_id,
        session_id=name,
        tenant_id=TENANT,
        parent_id=parent,
        timestamp=AT,
        kind="custom",
        schema_version=1,
        data=body,
        side=True,
    )


def _derived(name: str) -> list[Entry]:
    seen = observation_id(marker(name), ["m1"])
    content = f"thoughts on {marker(name)}"
    reflected = reflection_id(content, [seen])
    reflection: JsonObject = {
        "id": reflected,
        "content": content,
        "supportingObservationIds": [seen],
        "tokenCount": 4,
    }
    recorded: JsonObject = {"type": "om.reflections.recorded", "reflections": [reflection]}
    bound: JsonObject = {
        "type": "om.scope.bound",
        "scopeId": SCOPE,
        "refs": [f"reflection:{reflected}"],
    }
    dropped: JsonObject = {"type": "om.observations.dropped", "observationIds": [seen]}
    said = msgspec.structs.replace(sharing(name)[0], parent_id="bind2")
    return [
        _custom(name, "thought", "enter", recorded),
        _custom(name, "bind2", "thought", bound),
        msgspec.structs.replace(said, id="left"),
        _custom(name, "drop", "left", dropped),
        msgspec.structs.replace(said, id="right"),
    ]


def texts(memory: SharedMemory | SharedBranch) -> frozenset[str]:
    """Return whatever a read may show."""
    items = [item.content for item in memory.observations]
    items += [item.content for item in memory.reflections]
    return frozenset([*items, *(str(each) for each in memory.entries)])


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("name", ["owner", "peer"])
def test_no_leaf_of_the_session_gives_what_was_invalidated_in_it(
    shared: Shared, name: str, reason: str
) -> None:
    assert len(shared.branches_of(name)) >= 2
    assert all(marker(name) in str(texts(each)) for each in shared.branches_of(name))
    shared.invalidate(name, reason)
    for branch in shared.branches_of(name):
        assert texts(branch) == NOTHING
        assert branch.opening_id == "open"


@pytest.mark.parametrize("name", ["owner", "peer"])
def test_the_next_read_shows_the_rest_wherever_the_session_stands(
    shared: Shared, name: str
) -> None:
    (other,) = {"owner", "peer"} - {name}
    assert len(shared.read(name).reflections) == 2
    assert len(shared.read(name).entries) == 1
    shared.invalidate(name, "revoked")
    for fork in ("drop", "right"):
        shared.stand_on(name, fork)
        found = shared.read(name)
        assert marker(name) not in str(texts(found))
        assert {item.content for item in found.observations} == {marker(other)}
        assert len(found.reflections) == 1


SECRET = "marmalade"
KEPT = "Heron"


def secret(served: Running) -> tuple[str, list[str]]:
    """Let the lead say it and grant; return the message, and the memories that rest on it."""
    at_work(served, "lead", f"We decided: the release is called {KEPT}.")
    at_work(served, "lead", f"We decided: {SECRET} is served at the release party.")
    at_work(served, "writer", "We decided: the changelog is written last.")
    change(served, "grant", "writer")
    compacted = served.post("writer/compact", {}).json()  # What is stored must hold none of it.
    assert compacted["status"] == "completed", compacted
    entries = served.get("lead/entries").json()["entries"]
    source = next(each["id"] for each in entries if SECRET in str(each.get("message")))
    memory = served.get("lead/scopes/memory").json()
    items = (*memory["observations"], *memory["reflections"])
    return source, [each["id"] for each in items if SECRET in each["content"]]


def forks(served: Running, *names: str) -> str:
    """Fork the writer's session where it stands; return the position before anything is said."""
    stands = served.get("writer/context").json()
    entries = [
        {"id": name, "parentId": stands["leaf"], "role": "user", "content": f"Or {name}?"}
        for name in names
    ]
    done = served.post("writer/entries", {"entries": entries})
    assert served.get("writer/branches", atLeast=done.json()["position"]).status_code == 200
    return str(stands["position"])


def told(served: Running, memories: list[str], **where: str) -> str:
    """Return what the routes answer the writer."""
    paths = ["context", "view", "rebuild", "entries", *(f"memories/{each}" for each in memories)]
    answers = [served.get(f"writer/{path}", **where) for path in paths]
    assert all(answer.status_code == 200 for answer in answers)
    return "\n".join(answer.text for answer in answers)


def told_by_tools(url: str, memories: list[str]) -> str:
    """Return what the writer's tools answer a model."""

    async def ask() -> str:
        async with (
            Client(url) as client,
            McpClient(memory_server(client.session("writer"))) as tools,
        ):
            found = [await tools.call_tool(name) for name in ("memory_context", "memory_view")]
            found += [await tools.call_tool("recall", {"id": each}) for each in memories]
            assert not any(each.is_error for each in found)
            return "\n".join(str(each) for each in found)

    return asyncio.run(ask())


@pytest.mark.parametrize("reason", REASONS)
def test_no_route_no_fork_no_node_and_no_tool_tells_a_reader(tmp_path: Path, reason: str) -> None:
    with (
        running(tmp_path / "data", toml=TOML) as served,
        running(tmp_path / "data", toml=TOML, folds=False) as beside,
    ):
        source, memories = secret(served)
        then = forks(served, "left", "right")
        wheres = ({"leaf": "left"}, {"leaf": "right"}, {"asOf": then})
        assert memories
        assert all(told(served, memories, **where).count(SECRET) > 2 for where in wheres)
        assert told_by_tools(served.url, memories).count(SECRET) > 2
        done = served.post("lead/invalidations", {"ids": [source], "reason": reason})
        assert done.status_code == 200
        for node in (beside, served):
            for where in wheres:
                shown = told(node, memories, **where)
                assert SECRET not in shown
                assert KEPT in shown
            shown = told_by_tools(node.url, memories)
            assert SECRET not in shown
            assert KEPT in shown


def test_tools_show_what_is_granted_beside_the_own_until_it_is_revoked(tmp_path: Path) -> None:
    with running(tmp_path / "data", toml=TOML) as served:
        _, memories = secret(served)
        shown = told_by_tools(served.url, memories)
        for word, n_tools in ((SECRET, 3), (KEPT, 2), ("changelog", 2)):
            assert shown.count(word) >= n_tools
        assert "'found': True" in shown
        change(served, "revoke", "writer")
        shown = told_by_tools(served.url, memories)
        assert SECRET not in shown
        assert KEPT not in shown
        assert "changelog" in shown
        assert "'found': True" not in shown
