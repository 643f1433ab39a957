"""Delegations over HTTP: handles outlive the gateway, waits repeat, streams resume, tokens hold."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from ombus_schemas.supervision import (
    ChildEvent,
    ChildEventsCoalesced,
    ChildMilestone,
    DelegationFinished,
    DelegationStarted,
    SupervisionEvent,
)

from tests.gateway.serving import Running, running
from tests.supervision.telling import entry_of

TOML = """
[supervision.children.scout]
report = "milestones"
[supervision.children.scout.limits]
steps = 3
"""
SECRET = "ghp_" + "a1B2" * 9


def delegate(gateway: Running, **said: Any) -> dict[str, Any]:
    body = {"childId": "scout", "input": "look", "id": "ask-1", "report": "milestones", **said}
    answer = gateway.post("boss/delegations", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def wait(gateway: Running, delegation: str, seconds: float = 5.0) -> dict[str, Any]:
    answer = gateway.get(f"boss/delegations/{delegation}", waitSeconds=seconds)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def play_child(gateway: Running, delegation: str) -> None:
    """Claim, tell a milestone and finish, as a child would."""
    about: dict[str, Any] = {"child_id": "scout", "delegation_id": delegation}
    for body in (
        DelegationStarted(**about, epoch=1, holder="test", lease_ms=60_000),
        ChildMilestone(**about, child_ordinal=3, turn=1, child_event={"type": "turn"}),
        DelegationFinished(**about, epoch=1, status="completed", output="found", total_tokens=5),
    ):
        delegations = gateway.gateway.delegating.delegations()
        delegations.append([entry_of(body, "boss", "local")])


def play_loud_child(gateway: Running, delegation: str) -> None:
    """Claim, tell of everything and finish."""
    about: dict[str, Any] = {"child_id": "scout", "delegation_id": delegation}
    said: list[SupervisionEvent] = [
        DelegationStarted(**about, epoch=1, holder="test", lease_ms=60_000),
        ChildEvent(**about, child_ordinal=3, child_event={"type": "turn"}),
        ChildMilestone(**about, child_ordinal=4, turn=1, child_event={"type": "turn"}),
        ChildEventsCoalesced(**about, child_ordinal=5, dropped=2, max_per_second=1),
        DelegationFinished(**about, epoch=1, status="completed"),
    ]
    delegations = gateway.gateway.delegating.delegations()
    delegations.append([entry_of(body, "boss", "local") for body in said])


def admitted(gateway: Running, delegation: str) -> dict[str, Any]:
    while (found := wait(gateway, delegation, 0))["state"] == "requested":
        pass
    return found


def events(url: str, **options: Any) -> list[dict[str, Any]]:
    """Return the events of a stream until it ends."""
    found = []
    with httpx.stream("GET", url, timeout=20, **options) as stream:
        assert stream.status_code == 200
        for line in stream.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
    return found


def test_a_handle_answers_the_same_before_and_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        asked = delegate(gateway)
        id = asked["delegationId"]
        assert delegate(gateway)["delegationId"] == id
        assert admitted(gateway, id)["limits"]["steps"] == 3
        play_child(gateway, id)
        done = wait(gateway, id)
        assert (done["status"], done["output"], done["totalTokens"]) == ("completed", "found", 5)
        summed = gateway.get("boss/delegations/summary").json()
        tree = gateway.get("boss/delegations").json()
    with running(tmp_path, toml=TOML) as gateway:
        assert wait(gateway, id) == done
        assert delegate(gateway)["delegationId"] == id
        assert gateway.get("boss/delegations/summary").json() == summed
        assert gateway.get("boss/delegations").json() == tree
        assert gateway.post(f"boss/delegations/{id}/cancel", {}).json()["status"] == "terminal"
    assert summed["children"] == [{"childId": "scout", "attempts": 1, "outcome": "completed"}]
    assert tree["nodes"][0]["milestone"] == {"type": "turn"}


def test_a_wait_that_began_before_the_end_is_told_of_it(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        id = delegate(gateway)["delegationId"]
        admitted(gateway, id)
        found: list[dict[str, Any]] = []
        waiting = threading.Thread(target=lambda: found.append(wait(gateway, id, 15)))
        waiting.start()
        play_child(gateway, id)
        waiting.join()
        assert found[0]["state"] == "finished"


def test_cancelled_is_what_a_wait_answers_after_a_cancel(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        id = delegate(gateway)["delegationId"]
        assert gateway.post(f"boss/delegations/{id}/cancel", {}).json()["status"] == "cancelling"
        assert wait(gateway, id)["status"] == "cancelled"


def test_a_stream_resumes_behind_its_last_event_and_ends_with_the_delegation(
    tmp_path: Path,
) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        id = delegate(gateway)["delegationId"]
        admitted(gateway, id)
        play_child(gateway, id)
        url = f"{gateway.url}/v1/sessions/boss/delegations/events?delegation={id}"
        told = events(url + "&after=start")
        assert [each["event"]["type"] for each in told] == [
            "delegation_requested",
            "delegation_admitted",
            "delegation_started",
            "child_milestone",
            "delegation_finished",
        ]
        rest = events(url, headers={"Last-Event-ID": told[2]["position"]})
        assert rest == told[3:]


def test_a_stream_tells_nothing_louder_than_was_granted(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        # The parent asks for more than the child's table grants.
        id = delegate(gateway, report="stream")["delegationId"]
        admitted(gateway, id)
        play_loud_child(gateway, id)

        url = f"{gateway.url}/v1/sessions/boss/delegations/events?delegation={id}"
        told = events(url + "&after=start")

    assert [each["event"]["type"] for each in told] == [
        "delegation_requested",
        "delegation_admitted",
        "delegation_started",
        "child_milestone",
        "delegation_child_events_coalesced",
        "delegation_finished",
    ]


def test_nothing_secret_and_nothing_above_a_cap_gets_onto_the_log(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        delegate(gateway, input=f"use {SECRET}")
        large = delegate(gateway, id="ask-2", input="marker-word " * 10_000)
        assert wait(gateway, large["delegationId"])["reason"] == "input_bytes"
    raw = b"".join(path.read_bytes() for path in (tmp_path / "supervision").glob("log.db*"))
    assert b"delegation_requested" in raw
    assert SECRET.encode() not in raw
    assert b"marker-word" not in raw


def test_what_cannot_be_asked_is_refused_and_what_is_unknown_is_one_answer(
    tmp_path: Path,
) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        delegate(gateway)
        body = {"childId": "scout", "input": "other words", "id": "ask-1"}
        assert gateway.post("boss/delegations", body).status_code == 409
        for bad in ({"childId": "a b"}, {"id": "om:x"}, {"limits": {"stepps": 1}}, {"mode": "no"}):
            answer = gateway.post("boss/delegations", {"childId": "scout", "input": "x", **bad})
            assert answer.status_code == 400, bad
        assert gateway.get("boss/delegations/nothing").status_code == 404
        assert gateway.post("boss/delegations/nothing/cancel", {}).status_code == 404
        token = gateway.token("reader", sessions=["other"])
        headers = {"Authorization": f"Bearer {token}"}
        for path in ("boss/delegations", "boss/delegations/summary"):
            url = f"{gateway.url}/v1/sessions/{path}"
            assert httpx.get(url, headers=headers).status_code == 404
        url = f"{gateway.url}/v1/sessions/other/delegations"
        answer = httpx.post(url, json={"childId": "scout", "input": "x"}, headers=headers)
        assert answer.status_code == 404


def test_a_revoked_token_follows_no_further(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as gateway:
        id = delegate(gateway)["delegationId"]
        token = gateway.token("reader", sessions=["boss"])
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{gateway.url}/v1/sessions/boss/delegations/events?after=start"
        with httpx.stream("GET", url, timeout=20, headers=headers) as stream:
            lines = stream.iter_lines()
            assert any(line.startswith("data: ") for line in lines)
            (row,) = gateway.gateway.tokens.rows()
            gateway.gateway.tokens.revoke(row.id, datetime.now(UTC))
            gateway.gateway.delegating.delegations().cancel(b"local/boss", id)
            # The stream ends by itself, or this waits for ever.
            assert not any("delegation_cancelled" in line for line in lines)
        assert httpx.get(url, headers=headers).status_code == 401
