"""Who may do what: every route against every caller who may not, and what they learn from it."""

import os
import re
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from ombus.gateway.addresses import is_loopback
from ombus.gateway.limits import Limits
from ombus.gateway.serving import Listening, open_gateway
from ombus.gateway.tokens import BadToken, Principal, Tokens
from ombus.settings import BadSetting, load_settings
from ombus_schemas.api import ApiRole
from ombus_schemas.route import Route
from ombus_schemas.routes import ROUTES
from starlette.routing import Route as Endpoint

from tests.gateway.asking import ask
from tests.gateway.serving import Running, running

NOW = datetime(2026, 11, 29, tzinfo=UTC)
PROBES = int(os.environ.get("OMBUS_TEST_PROBES", "200"))
"""1,000 is the target (`make gateway-full`); the order of magnitude shows here as well."""
ALL = get_args(ApiRole)
PUBLIC = {"/live", "/ready", "/openapi.json"}
"""What says nothing of anybody; ``/metrics`` is an operator's."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(tmp_path_factory.mktemp("guarded")) as found:
        owner = {"Authorization": f"Bearer {found.token('operator')}"}
        for session in ("mine", "chat-1"):
            found.append(session, "The ferry leaves at 9:15.", headers=owner)
            found.post(f"{session}/flush", {}, headers=owner)
        found.get("mine/status")
        yield found


def without_request_id(answer: httpx.Response) -> tuple[int, bytes]:
    assert answer.headers["content-type"] == "application/problem+json", answer.request.url
    said = answer.json()
    request_id = said["requestId"]
    assert answer.headers["x-request-id"] == request_id
    return answer.status_code, answer.content.replace(request_id.encode(), b"")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_without_a_valid_token_every_session_is_the_same(guarded: Running, route: Route) -> None:
    past = {"now": datetime.now(UTC) - timedelta(days=2)}
    revoked = guarded.token("operator")
    guarded.gateway.tokens.revoke(revoked.split("_")[1], datetime.now(UTC))
    good = guarded.token("operator")
    callers = {
        "none": None,
        "nonsense": "nonsense",
        "wrong secret": good[:-8] + "AAAAAAAA",
        "expired": guarded.token("operator", **past),
        "revoked": revoked,
    }
    answers = {
        (name, session): without_request_id(ask(guarded, route, session, token))
        for name, token in callers.items()
        for session in ("mine", "nobody-has-this")
    }
    assert len(set(answers.values())) == 1, answers
    ((status, body),) = set(answers.values())
    assert status == 401
    assert b"mine" not in body


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_absent_and_forbidden_are_one_answer(guarded: Running, route: Route) -> None:
    others = [role for role in ALL if role not in route.roles]
    callers: list[tuple[str, str]] = []
    if route.of_session:
        callers += [
            (guarded.token(*ALL, sessions=["chat-*"]), "mine"),
            (guarded.token(*ALL, sessions=["chat-*"]), "guessed-id"),
        ]
        if not route.creates:
            callers += [
                (guarded.token(*ALL, tenant="elsewhere"), "mine"),
                (guarded.token(*ALL), "guessed-id"),
            ]
    for role in others:
        callers += [(guarded.token(role), "mine"), (guarded.token(role), "guessed-id")]
    assert callers or not route.of_session
    answers = [without_request_id(ask(guarded, route, session, t)) for t, session in callers]
    assert len(set(answers)) <= 1
    assert all(status == 404 for status, _ in answers)
    absent = guarded.http.get(
        "/v1/nothing/here", headers={"Authorization": f"Bearer {guarded.token('operator')}"}
    )
    assert all(each == without_request_id(absent) for each in answers)


def test_every_path_that_is_served_is_in_the_table_or_says_nothing(guarded: Running) -> None:
    served = {route.path for route in guarded.gateway.app().routes if isinstance(route, Endpoint)}
    assert served == {route.path for route in ROUTES} | PUBLIC | {"/metrics"}


def test_metrics_are_an_operator_s(guarded: Running) -> None:
    tokens = [guarded.token(role) for role in ALL if role != "operator"]
    said = [{"Authorization": f"Bearer {token}"} for token in tokens]
    answers = {
        without_request_id(guarded.http.get(path, headers=headers))
        for headers in said
        for path in ("/metrics", "/v1/nothing/here")
    }
    assert [status for status, _ in answers] == [404]
    assert without_request_id(guarded.http.get("/metrics"))[0] == 401
    operator = {"Authorization": f"Bearer {guarded.token('operator')}"}
    assert guarded.http.get("/metrics", headers=operator).status_code == 200


def test_a_memory_of_another_session_is_as_unknown_as_one_nobody_has(guarded: Running) -> None:
    operator = {"Authorization": f"Bearer {guarded.token('operator')}"}
    view = guarded.http.get("/v1/sessions/mine/view?mode=full", headers=operator).text
    known = re.findall(r"\b[0-9a-f]{12}\b", view)[0]
    reader = guarded.token("reader", sessions=["chat-*"])
    (recall,) = [route for route in ROUTES if route.name == "recall"]
    answers = [ask(guarded, recall, "chat-1", reader, part).json() for part in (known, "0" * 12)]
    assert all(each.pop("hash") for each in answers)
    one, other = (str(each).replace(known, "").replace("0" * 12, "") for each in answers)
    assert one == other


def test_another_tenant_lists_and_touches_nothing_of_ours(guarded: Running) -> None:
    headers = {"Authorization": f"Bearer {guarded.token(*ALL, tenant='elsewhere')}"}
    assert guarded.http.get("/v1/sessions", headers=headers).json()["sessions"] == []
    before = guarded.http.get(
        "/v1/sessions", headers={"Authorization": f"Bearer {guarded.token('operator')}"}
    ).json()
    guarded.append("mine", "written elsewhere", headers=headers)
    after = guarded.http.get(
        "/v1/sessions", headers={"Authorization": f"Bearer {guarded.token('operator')}"}
    ).json()
    assert after == before


def test_a_pattern_shows_its_own_sessions_only(guarded: Running) -> None:
    headers = {"Authorization": f"Bearer {guarded.token('reader', sessions=['chat-*'])}"}
    found = guarded.http.get("/v1/sessions", headers=headers).json()["sessions"]
    assert [each["session"] for each in found] == ["chat-1"]


def test_absent_and_forbidden_take_as_long(guarded: Running) -> None:
    limited = {"Authorization": f"Bearer {guarded.token('reader', sessions=['chat-*'])}"}
    times: dict[str, list[float]] = {"mine": [], "chat-absent": []}
    for _ in range(PROBES):
        for session, seen in times.items():
            started = time.perf_counter()
            answer = guarded.http.get(f"/v1/sessions/{session}/context", headers=limited)
            seen.append(time.perf_counter() - started)
            assert answer.status_code == 404
    forbidden, absent = (statistics.median(each) for each in times.values())
    print(f"median: forbidden {forbidden * 1e3:.3f} ms, absent {absent * 1e3:.3f} ms")
    assert abs(forbidden - absent) < max(forbidden, absent)


def test_a_publisher_may_append_but_neither_read_nor_steer_memory(guarded: Running) -> None:
    headers = {"Authorization": f"Bearer {guarded.token('publisher')}"}
    guarded.append("mine", "more", headers=headers)
    body = {"entries": [{"kind": "custom", "side": True, "data": {"type": "om.settings.changed"}}]}
    answer = guarded.post("mine/entries", body, headers=headers)
    assert answer.json()["results"][0]["code"] == "forbidden"


@pytest.mark.parametrize("workspace", ["mine", "nobody-has-this"])
def test_a_funnel_leads_nowhere_the_caller_may_not_write(guarded: Running, workspace: str) -> None:
    to_there: dict[str, Any] = {"funnel": {"workspace": workspace}}
    kept = {"writtenBy": "files", "session": to_there}
    headers = {"Authorization": f"Bearer {guarded.token('supervisor', sessions=['chat-*'])}"}
    for said in (to_there, kept):
        answer = guarded.post("chat-1/entries", settings_of(said), headers=headers)
        assert answer.status_code == 422
        (result,) = answer.json()["results"]
        assert (result["code"], workspace in result["detail"]) == ("forbidden", False)
    own = settings_of({"funnel": {"workspace": "chat-team"}})
    assert guarded.post("chat-1/entries", own, headers=headers).status_code == 200
    all_of_them = {"Authorization": f"Bearer {guarded.token('supervisor')}"}
    wide = settings_of(to_there)
    assert guarded.post("chat-2/entries", wide, headers=all_of_them).status_code == 200


def test_a_funnel_of_the_host_may_be_said_again(tmp_path: Path) -> None:
    toml = '[observational-memory.funnel]\nworkspace = "team"\n'
    with running(tmp_path / "data", toml=toml) as served:
        headers = {"Authorization": f"Bearer {served.token('supervisor', sessions=['chat-*'])}"}
        for workspace, status in (("team", 200), ("others", 422)):
            body = settings_of({"funnel": {"workspace": workspace}, "passive": True})
            assert served.post("chat-1/entries", body, headers=headers).status_code == status


def settings_of(said: dict[str, Any]) -> dict[str, Any]:
    data = {"type": "om.settings.changed", "settings": said}
    return {"entries": [{"kind": "custom", "side": True, "data": data}]}


def test_the_first_token_closes_an_open_gateway(tmp_path: Path) -> None:
    with running(tmp_path / "data") as served:
        assert served.http.get("/v1/sessions").status_code == 200
        rebound = served.http.get("/v1/sessions", headers={"Host": "evil.example:80"})
        assert rebound.status_code == 401
        entry = {"entries": [{"role": "user", "content": "planted by a page"}]}
        planted = served.post("s/entries", entry, headers={"Origin": "https://evil.example"})
        assert planted.status_code == 401
        own_page = {"Origin": served.url}
        assert served.http.get("/v1/sessions", headers=own_page).status_code == 200
        token = served.token("reader")
        assert served.http.get("/v1/sessions").status_code == 401
        served.gateway.tokens.revoke(token.split("_")[1], datetime.now(UTC))
        assert served.http.get("/v1/sessions").status_code == 401


def test_no_token_and_an_address_others_reach_is_refused(tmp_path: Path) -> None:
    settings = load_settings({"data": str(tmp_path)}, {}, [])
    with pytest.raises(BadSetting, match="there is no token"):
        open_gateway(settings, Listening(host="0.0.0.0"), Limits())


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("localhost:7700", True),
        ("127.0.0.1", True),
        ("[::1]:7700", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_what_is_loopback(named: str, expected: bool) -> None:
    assert is_loopback(named) is expected


def test_only_hashes_are_kept(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    token = tokens.create("n", "t", ["reader"], ["*"], NOW, None)
    tokens.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert token.split("_", 2)[2].encode() not in kept
    assert (tmp_path / "tokens.db").stat().st_mode & 0o077 == 0


def test_a_token_holds_until_it_expires(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    token = tokens.create("n", "t", ["reader"], ["a*z"], NOW, timedelta(hours=1))
    found = tokens.principal(token, NOW)
    assert isinstance(found, Principal)
    assert [found.may_use(each) for each in ("az", "a.b.z", "ab", "zaz")] == [
        True,
        True,
        False,
        False,
    ]
    assert tokens.principal(token, NOW + timedelta(hours=1)) is None
    tokens.close()


@pytest.mark.parametrize(
    ("roles", "sessions", "tenant"),
    [([], ["*"], "t"), (["king"], ["*"], "t"), (["reader"], ["a b"], "t"), (["reader"], [], "t"),
     (["reader"], ["*"], "_system")],
)  # fmt: skip
def test_a_token_that_makes_no_sense_is_not_made(
    tmp_path: Path, roles: list[str], sessions: list[str], tenant: str
) -> None:
    tokens = Tokens(tmp_path)
    with pytest.raises(BadToken):
        tokens.create("n", tenant, roles, sessions, NOW, None)
    assert tokens.is_empty()
    tokens.close()


def test_the_name_of_a_valid_token_is_for_those_who_may_do_the_same(tmp_path: Path) -> None:
    tokens, roles = Tokens(tmp_path), ["reader", "publisher"]
    boss = tokens.create("boss", "t", roles, ["a-*", "b"], NOW, None)
    boss_id = boss.split("_")[1]
    others: list[tuple[str, list[str], list[str]]] = [
        ("u", roles, ["a-*", "b"]), ("t", ["reader"], ["a-*", "b"]), ("t", roles, ["a-*"]),
    ]  # fmt: skip
    for other in others:
        with pytest.raises(BadToken, match=f"ombus token revoke {boss_id}"):
            tokens.create("boss", *other, NOW, None)
    assert len(tokens.rows()) == 1
    again = tokens.create("boss", "t", roles[::-1], ["b", "a-*"], NOW, timedelta(hours=1))
    for each in (boss, again):
        assert tokens.principal(each, NOW) is not None
    tokens.revoke(boss_id, NOW)
    with pytest.raises(BadToken, match="choose another name"):
        tokens.create("boss", *others[0], NOW, None)
    tokens.create("boss", *others[0], NOW + timedelta(hours=1), None)
    tokens.close()


def test_no_token_has_the_name_of_those_who_need_none(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    with pytest.raises(BadToken, match="choose another name"):
        tokens.create("local", "local", ["supervisor"], ["*"], NOW, None)
    assert tokens.is_empty()
    tokens.close()
