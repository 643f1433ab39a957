"""``ombus tree``: what it draws, what it says as JSON, what it says when there is nothing."""

from pathlib import Path

import pytest
from ombus.cli.tree import lines_of
from ombus.operator.delegations import Delegations
from ombus.settings import load_settings
from ombus_schemas.delegating import DelegateRequest, TreeAnswer, TreeNode
from ombus_schemas.entries import Ownership

from tests.cli.conftest import Cli, cli, folder
from tests.gateway.serving import running

__all__ = ["cli", "folder"]


def node(name: str, *below: TreeNode, **members: object) -> TreeNode:
    said = {"state": "started", "child_session_id": f"{name}-session", **members}
    return TreeNode(delegation_id=f"{name}1", child_id=name, children=below, **said)  # type: ignore[arg-type]  # members of the test


def databases(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.db")}


def test_a_tree_is_drawn_with_states_usage_and_the_last_milestone() -> None:
    scout = node("scout", state="finished", total_tokens=1_200, requested_ms=1_000, ended_ms=3_500)
    lead = node(
        "lead",
        scout,
        attempts=2,
        lifetime="session",
        milestone={"type": "tool_execution_started", "name": "bash"},
        turn=4,
        events=7,
        coalesced=3,
    )
    other = node("other", state="failed", reason="timeout", ended_ms=9, is_capped=True, events=1)
    assert lines_of(TreeAnswer(session="boss", nodes=(lead, other))) == [
        "boss",
        "├─ lead started  since 00:00:00Z  session  2 children  7 events (+3 coalesced)  "
        "last tool_execution_started:bash @4  lead1",
        "│  └─ scout finished  2.5 s  1,200 tokens  scout1",
        "└─ other failed  (timeout)  0.0 s  1 events capped  other1",
    ]
    assert lines_of(TreeAnswer(session="boss")) == ["boss: no delegations"]


def test_the_command_reads_what_was_folded_and_ends_with_the_last_delegation(
    cli: Cli, folder: Path
) -> None:
    file = folder.parent / "settings.toml"
    file.write_text("[supervision.children.scout]\n")
    settings = load_settings({"data": str(folder)}, {}, [file])
    owner = Ownership(account_id="local")
    with Delegations(settings) as delegations:
        asked = DelegateRequest(child_id="scout", input="look")
        id = delegations.delegate(b"local/boss", asked, owner).delegation_id
        delegations.wait(b"local/boss", id, 0.1)
        assert delegations.cancel(b"local/boss", id)
    drawn = cli("tree", "boss", "--follow").out.splitlines()
    assert drawn[0] == "boss"
    assert "scout cancelled" in drawn[1]
    said = cli("tree", "boss", "--json").json()
    assert said["nodes"][0]["state"] == "cancelled"

    copy = folder.parent / "copy"
    assert cli("backup", copy).code == 0
    assert databases(copy) == databases(folder) > {"supervision/milestones-v1/state.db"}
    assert cli("--data", copy, "tree", "boss", "--json").json() == said


def test_a_session_that_delegated_nothing_has_no_delegations(cli: Cli, folder: Path) -> None:
    assert cli("append", "boss", stdin='{"role":"user","content":"x"}').code == 0

    alone = cli("tree", "boss", "--follow")
    with running(folder):
        beside = cli("tree", "boss")

    assert (alone.code, alone.out) == (0, "boss: no delegations\n")
    assert beside == alone


@pytest.mark.parametrize("name", ["boss", "no/such/name"])
def test_nothing_to_draw_is_misuse(cli: Cli, name: str) -> None:
    assert cli("tree", name).code == 2


def test_the_same_is_drawn_through_a_gateway(cli: Cli, folder: Path) -> None:
    with running(folder, toml="[supervision.children.scout]\n") as gateway:
        asked = {"childId": "nobody", "input": "look"}
        gateway.post("boss/delegations", {**asked, "mode": "sync"})
        drawn = cli("tree", "boss", "--url", gateway.url, "--follow").out
        assert "nobody rejected  (allow_list)" in drawn
        assert drawn == cli("tree", "boss").out
    assert cli("tree", "boss", "--url", "http://127.0.0.1:9").code == 3
