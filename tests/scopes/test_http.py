"""Shared scopes over HTTP: what is granted is read in context, view and recall, until it is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, cli, folder
from tests.gateway.serving import Running, running

__all__ = ["cli", "folder"]

TOML = """
[observational-memory.sharedScopes.release]
ownerSessionId = "lead"
"""
FACT = "We decided: the release is called Heron."


def at_work(served: Running, session: str, said: str) -> None:
    """Open the scope, go there, and remember what is said."""
    served.append(session, "Hello.")
    assert served.post(f"{session}/scopes/open", {"id": "release"}).status_code in (200, 409)
    served.post(f"{session}/scopes/enter", {"scopeId": "release"})
    served.append(session, said)
    flushed = served.post(f"{session}/flush", {"waitSeconds": 20}).json()
    assert flushed["status"] == "completed", flushed


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("shared")
    with running(folder, toml=TOML) as found:
        at_work(found, "lead", FACT)
        at_work(found, "writer", "We decided: the changelog is written last.")
        at_work(found, "tester", "We decided: the smoke test runs on the ferry.")
        yield found


def change(served: Running, act: str, *readers: str) -> dict[str, object]:
    body = {"scopeId": "release", "principals": list(readers)}
    answer = served.post(f"lead/scopes/{act}", body)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def memory(served: Running, session: str, name: str = "context") -> str:
    answer = served.get(f"{session}/{name}").json()
    return str(answer["blocks"][0]["content"] if name == "context" else answer["view"]["text"])


def test_a_grant_opens_context_and_view_and_a_revocation_closes_them(served: Running) -> None:
    for name in ("context", "view"):
        assert "Heron" not in memory(served, "writer", name)
        assert change(served, "grant", "writer", "tester")["granted"] == ["writer", "tester"]
        shown = memory(served, "writer", name)
        assert "Heron" in shown
        assert "smoke test" in shown
        assert "distilled from earlier work" in shown  # not "from this session": these are not
        assert change(served, "revoke", "writer", "tester")["granted"] == []
        assert "Heron" not in memory(served, "writer", name)
        assert "changelog" in memory(served, "writer", name)


def test_recall_reads_the_sources_of_what_is_shared(served: Running) -> None:
    found = served.get("lead/scopes/memory").json()["observations"]
    memory_id = next(each["id"] for each in found if "Heron" in each["content"])
    change(served, "revoke", "writer")
    assert served.get(f"writer/memories/{memory_id}").json()["recalled"]["found"] is False
    change(served, "grant", "writer")
    recalled = served.get(f"writer/memories/{memory_id}").json()["recalled"]
    assert FACT in str(recalled["sourceEntries"])
    assert recalled["missingSourceEntryIds"] == []
    change(served, "revoke", "writer")
    assert served.get(f"writer/memories/{memory_id}").json()["recalled"]["found"] is False


def test_the_full_view_and_the_page_show_what_is_the_session_s_own(served: Running) -> None:
    change(served, "grant", "writer")
    full = served.get("writer/view", mode="full").json()["view"]["text"]
    assert "Heron" not in full
    change(served, "revoke", "writer")


def test_what_is_invalidated_at_its_owner_is_shared_no_longer(served: Running) -> None:
    at_work(served, "lead", "We decided: the codename of the next one is Osprey.")
    change(served, "grant", "writer")
    assert "Osprey" in memory(served, "writer")
    entries = served.get("lead/entries").json()["entries"]
    source = next(each["id"] for each in entries if "Osprey" in str(each.get("message")))
    done = served.post("lead/invalidations", {"ids": [source], "reason": "revoked"})
    assert done.status_code == 200
    shown = memory(served, "writer")
    assert "Osprey" not in shown
    assert "Heron" in shown
    change(served, "revoke", "writer")


def test_decisions_and_grants_can_be_asked_for(served: Running) -> None:
    change(served, "grant", "tester")
    memory(served, "tester")
    memory(served, "writer")
    rows = served.get("lead/scopes/access", limit=2).json()["decisions"]
    assert [row["readerSessionId"] for row in rows] == ["writer", "tester"]
    assert rows[0]["reason"] == "not_granted"
    assert rows[1]["granted"] is True
    assert rows[1]["observations"] > 0
    grants = served.get("lead/scopes/grants").json()
    assert (grants["owner"], grants["granted"]) == ("local", {"release": ["tester"]})
    change(served, "revoke", "tester")


def test_the_same_grant_twice_says_nothing_new_and_a_revocation_always_does(
    served: Running,
) -> None:
    assert "id" in change(served, "grant", "writer")
    assert "id" not in change(served, "grant", "writer")
    assert "id" in change(served, "revoke", "writer")
    assert "id" in change(served, "revoke", "writer")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"scopeId": "release", "principals": ["rival/writer"]}, 409, "scope_refused"),
        ({"scopeId": "release", "principals": []}, 400, "bad_request"),
        ({"scopeId": "release", "principals": [" padded "]}, 400, "bad_request"),
        ({"scopeId": "..", "principals": ["writer"]}, 400, "bad_request"),
        ({"scopeId": "never-opened", "principals": ["writer"]}, 409, "scope_refused"),
        ({"scopeId": "session", "principals": ["writer"]}, 409, "scope_refused"),
    ],
)
def test_what_cannot_be_granted_is_refused_by_name(
    served: Running, body: dict[str, object], status: int, code: str
) -> None:
    answer = served.post("lead/scopes/grant", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_session_of_the_own_tenant_may_be_named_with_it(served: Running) -> None:
    assert change(served, "grant", "local/writer")["granted"] == ["writer"]
    assert change(served, "revoke", "local/writer")["granted"] == []


def test_only_whoever_granted_first_grants_and_revokes(tmp_path: Path) -> None:
    with running(tmp_path, toml=TOML) as served:
        at_work(served, "lead", FACT)
        alice = {"Authorization": f"Bearer {named(served, 'alice')}"}
        mallory = {"Authorization": f"Bearer {named(served, 'mallory')}"}
        body = {"scopeId": "release", "principals": ["writer"]}
        assert served.post("lead/scopes/grant", body, headers=alice).status_code == 200
        for act in ("grant", "revoke"):
            answer = served.post(f"lead/scopes/{act}", body, headers=mallory)
            assert (answer.status_code, answer.json()["code"]) == (403, "not_the_owner")
        # A new token of the same name is the same owner.
        again = {"Authorization": f"Bearer {named(served, 'alice')}"}
        answer = served.post("lead/scopes/revoke", body, headers=again)
        assert answer.json()["granted"] == []


def test_the_data_folder_revokes_what_a_token_granted(cli: Cli, folder: Path) -> None:
    with running(folder, toml=TOML) as served:
        at_work(served, "lead", FACT)
        at_work(served, "writer", "We decided: the changelog is written last.")
        alice = {"Authorization": f"Bearer {named(served, 'alice')}"}
        body = {"scopeId": "release", "principals": ["writer"]}
        assert served.post("lead/scopes/grant", body, headers=alice).status_code == 200
        context = "/v1/sessions/writer/context"
        assert "Heron" in served.http.get(context, headers=alice).text
        granting = cli("scope", "grant", "release", "tester", "--session", "lead")
        assert (granting.code, "[not_the_owner]" in granting.err) == (2, True)
        done = cli("scope", "revoke", "release", "writer", "--session", "lead", "--json")
        assert (done.code, done.json().get("granted", [])) == (0, [])
        assert "Heron" not in served.http.get(context, headers=alice).text
        # They are alice's as before.
        assert served.post("lead/scopes/grant", body, headers=alice).json()["granted"] == ["writer"]


def named(served: Running, name: str) -> str:
    from datetime import UTC, datetime

    tokens = served.gateway.tokens
    return tokens.create(name, "local", ["supervisor"], ["*"], datetime.now(UTC), None)
