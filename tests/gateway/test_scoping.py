"""Work scopes over HTTP: what holds once a command is answered, and what is warned of."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from ombus.operator.scoping import warnings_of
from ombus_streams.memory.scopes import EMPTY, MAX_BINDS, Scope

from tests.gateway.serving import Running, running

LOW = """
[observational-memory.reflection]
observationTokens = 10
[observational-memory.dropper]
targetTokens = 1
policy = "lowest-relevance"
"""


def opened(served: Running, session: str, scope: str = "plan") -> None:
    served.append(session, "Hello.")
    assert served.post(f"{session}/scopes/open", {"id": scope}).status_code == 200


def test_a_command_holds_on_the_leaf_that_was_named(served: Running) -> None:
    served.append("s1", "one")
    tip = served.get("s1/status").json()["leaf"]
    fork = {"id": "fork", "parentId": tip, "role": "user", "content": "two"}
    other = {"id": "other", "parentId": tip, "role": "user", "content": "three"}
    served.post("s1/entries", {"entries": [fork, other]})
    done = served.post("s1/scopes/open", {"id": "plan", "leaf": "fork"}).json()
    assert done["leaf"] == "fork"
    on_fork = served.get("s1/scopes", leaf="fork").json()["scopes"]
    assert [row["id"] for row in on_fork] == ["session", "plan"]
    assert len(served.get("s1/scopes", leaf="other").json()["scopes"]) == 1
    assert served.post("s1/scopes/open", {"id": "plan", "leaf": "other"}).status_code == 200


def test_the_same_entry_id_asks_for_the_same_thing_once(served: Running) -> None:
    served.append("s2", "one")
    body = {"id": "plan", "entryId": "scope-1"}
    first = served.post("s2/scopes/open", body)
    again = served.post("s2/scopes/open", body)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["id"] == again.json()["id"] == "scope-1"
    taken = served.post("s2/scopes/enter", {"scopeId": "plan", "entryId": "scope-1"})
    assert (taken.status_code, taken.json()["code"]) == (409, "conflict")


def test_of_two_at_once_one_opens_the_scope_and_the_other_is_told(served: Running) -> None:
    served.append("s3", "one")
    for n in range(5):
        with ThreadPoolExecutor(4) as threads:
            asked = [
                threads.submit(served.post, "s3/scopes/open", {"id": f"p{n}", "label": str(each)})
                for each in range(4)
            ]
            answers = [each.result() for each in asked]
        assert sorted(each.status_code for each in answers) == [200, 409, 409, 409]
        winner = next(at for at, each in enumerate(answers) if each.status_code == 200)
        rows = served.get("s3/scopes").json()["scopes"]
        assert rows[-1]["label"] == str(winner)


def test_with_a_host_scope_the_dropper_rests(tmp_path: Path) -> None:
    with running(tmp_path / "data", toml=LOW) as served:
        for session in ("free", "scoped"):
            if session == "scoped":
                opened(served, session)
            texts = [f"We decided that ferry {n} leaves at {n}:15 from pier {n}." for n in range(9)]
            served.append(session, *texts)
            done = served.post(f"{session}/flush", {}).json()
            assert done["status"] == "completed"
            assert done["reflections"] > 0
            assert bool(done.get("dropped", 0)) is (session == "free")


def test_what_was_visible_is_visible_as_of_then(served: Running) -> None:
    opened(served, "s4")
    before = served.get("s4/scopes").json()["position"]
    served.post("s4/scopes/enter", {"scopeId": "plan"})
    assert served.get("s4/scopes").json()["stack"] == ["session", "plan"]
    assert served.get("s4/scopes", asOf=before).json()["stack"] == ["session"]


def test_caps_are_reported_before_they_are_reached() -> None:
    scopes = {f"s{n}": Scope(id=f"s{n}") for n in range(230)}
    refs = tuple(f"om:{n:012x}" for n in range(int(MAX_BINDS * 0.9) + 1))
    quiet = msgspec.structs.replace(EMPTY, scopes={**EMPTY.scopes, **scopes})
    assert warnings_of(quiet) == ()
    full = msgspec.structs.replace(
        quiet,
        scopes={**quiet.scopes, "more": Scope(id="more")},
        refs_by_scope_id={"s1": refs, "s2": refs[:100]},
    )
    many, bound = warnings_of(full)
    assert many.startswith("231 of 256 scopes are used")
    assert bound.startswith("scope s1: 3,687 of 4,096 references are bound")


def test_a_cap_that_is_near_is_in_the_answer(served: Running) -> None:
    served.append("s5", "one")
    for n in range(231):
        last = served.post("s5/scopes/open", {"id": f"p{n}"}).json()
        assert bool(last.get("warnings")) is (n == 230)
    assert served.get("s5/scopes").json()["warnings"] == last["warnings"]


@pytest.mark.parametrize(
    ("command", "body", "status", "code"),
    [
        ("open", {"id": "no good"}, 400, "bad_request"),
        ("open", {}, 400, "bad_request"),
        ("open", {"id": "x", "parentId": None}, 400, "bad_request"),
        ("open", {"id": "session"}, 409, "scope_refused"),
        ("open", {"id": "x", "label": "x" * 600}, 422, "scope_limit"),
        ("enter", {"scopeId": "nowhere"}, 409, "scope_refused"),
        ("bind", {"scopeId": "session", "refs": ["om:0123456789ab"]}, 409, "scope_refused"),
        ("bind", {"scopeId": "session", "refs": ["else"]}, 400, "bad_request"),
    ],
)
def test_what_is_refused_says_why(
    served: Running, command: str, body: dict[str, object], status: int, code: str
) -> None:
    served.append("s6", "one")
    answer = served.post(f"s6/scopes/{command}", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
