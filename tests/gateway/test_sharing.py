"""Gateways that share a log on Kafka: whoever is asked, the owner's rows answer.

Sizes are those of a default run; ``OMBUS_TEST_GATEWAY_PAIRS`` makes the pairs full.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import msgspec
import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus.gateway.peers import PRINCIPAL, SIGNATURE, Peers
from ombus.gateway.problems import UNTOUCHED
from ombus.gateway.tokens import Principal
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft

from tests.gateway.serving import MAX_WAIT_S
from tests.gateway.sharing import Shared, sessions_by_owner, sharing
from tests.kafka.transactions import transact
from tests.kafka.world import Place, make_place
from tests.support.brokers import Service

N_PAIRS: Final = int(os.environ.get("OMBUS_TEST_GATEWAY_PAIRS", "300"))
N_SESSIONS: Final = 40


@pytest.fixture(scope="module")
def place(kafka: Service, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(kafka.address, tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def both(place: Place) -> Iterator[list[Shared]]:
    with sharing(place) as found:
        yield found


def test_what_one_appends_the_other_reads(both: list[Shared]) -> None:
    a, b = both
    answered_by: set[str] = set()
    for number in range(N_PAIRS):
        session, text = f"pair-{number % N_SESSIONS}", f"word-{number}-of-many"
        done = a.post(f"{session}/entries", {"entries": [{"role": "user", "content": text}]})
        assert done.status_code == 200, done.text
        assert done.headers["ombus-instance"] == "a"
        read = b.get(f"{session}/context", atLeast=done.json()["position"], recent=1)
        assert read.status_code == 200, read.text
        assert read.headers["ombus-instance"] == "b"
        assert text in read.text
        answered_by.add(read.headers["ombus-answered-by"])
    assert answered_by == {"a", "b"}
    print(f"{N_PAIRS:,} pairs through two gateways, none missed its own write")


def test_a_session_answers_the_same_through_whichever_gateway(both: list[Shared]) -> None:
    a = both[0]
    for owner, session in sessions_by_owner(both, "same").items():
        a.append(session, "The ferry leaves at nine.", "And comes back at noon.")
        for path in ("entries", "branches", "rebuild", "context", "status", "view"):
            answers = [each.get(f"{session}/{path}") for each in both]
            assert [each.headers["ombus-answered-by"] for each in answers] == [owner, owner]
            assert answers[0].content == answers[1].content
            assert answers[0].headers["etag"] == answers[1].headers["etag"]


@pytest.mark.parametrize("query", [b'leaf="x"', b"leaf=<x>", b"leaf=x#y"])
def test_what_a_url_should_quote_is_answered_wherever_it_is_asked(
    both: list[Shared], query: bytes
) -> None:
    """What is signed is what goes over the wire, which the HTTP library may have quoted."""
    both[0].append("quoted", "here")
    for each in both:
        host, _, port = each.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), MAX_WAIT_S) as caller:
            lines = (b"GET /v1/sessions/quoted/context?" + query + b" HTTP/1.1", b"Host: 127.0.0.1")
            caller.sendall(b"\r\n".join((*lines, b"Connection: close", b"", b"")))
            said = caller.makefile("rb").read()
        assert (b" 404 " in said.split(b"\r\n")[0] and b"no_leaf" in said) or (
            b" 400 " in said.split(b"\r\n")[0] and b"bad_request" in said
        ), said


def test_ids_count_once_whichever_gateway_they_come_through(both: list[Shared]) -> None:
    for session in sessions_by_owner(both, "once").values():
        entry = {"id": "e1", "role": "user", "content": "hello"}
        said = [each.post(f"{session}/entries", {"entries": [entry]}).json() for each in both]
        assert [each["results"][0]["status"] for each in said] == ["appended", "duplicate"]


def test_partitions_that_end_in_a_marker_take_appends_and_are_read_as_all_others(
    both: list[Shared], place: Place
) -> None:
    sessions = sessions_by_owner(both, "marked")
    strange = [Draft(key=b"local/strange-%d" % n, value=b"{}", headers=()) for n in range(20)]
    with closing(KafkaLog(place.connection, place.topic)) as log:
        assert {log.partition_of(draft.key) for draft in strange} == set(range(log.partitions))
        transact(place.connection, log, strange)
    for each in both:
        assert each.http.get("/ready").status_code == 200
        for session in sessions.values():
            # Before it is said what there is not, the fold must be as far as the log.
            assert each.get(f"{session}/context").status_code == 404
    for each in both:
        for session in sessions.values():
            each.append(f"{session}-of-{each.instance}", "hello")
            assert each.get(f"{session}-of-{each.instance}/context").status_code == 200


def test_an_expected_leaf_is_lost_whichever_gateway_it_comes_through(both: list[Shared]) -> None:
    for session in sessions_by_owner(both, "leaf").values():
        root = {"id": "root", "role": "user", "content": "x"}
        both[0].post(f"{session}/entries", {"entries": [root]})
        answers = []
        for number, each in enumerate(both):
            entry = {"id": f"e{number}", "role": "user", "content": "x", "expectedLeaf": "root"}
            answers.append(each.post(f"{session}/entries", {"entries": [entry]}))
        assert [each.status_code for each in answers] == [200, 409]


def test_a_list_of_sessions_is_of_all_partitions(both: list[Shared]) -> None:
    a = both[0]
    names = sorted(f"listed-{number}" for number in range(20))
    for name in names:
        a.append(name, "hello")
    for each in both:
        found: list[str] = []
        after: str | None = "listed-"
        while after is not None:
            page = each.http.get("/v1/sessions", params={"after": after, "limit": 7}).json()
            found += [row["session"] for row in page["sessions"]]
            after = page.get("next")
        assert [name for name in found if name.startswith("listed-")] == names


def test_steering_works_through_whichever_gateway(both: list[Shared]) -> None:
    for session in sessions_by_owner(both, "steered").values():
        for each in both:
            each.append(session, f"The harbour of {each.instance} opens at dawn. " * 20)
            begun = each.post(f"{session}/runs/r-{each.instance}/started", {})
            assert begun.status_code == 200, begun.text
            ended = each.post(f"{session}/runs/r-{each.instance}/finished", {})
            assert ended.status_code == 200, ended.text
            flushed = each.post(f"{session}/flush", {"waitSeconds": 20}).json()
            assert flushed["status"] == "completed"
            tried = each.post(f"{session}/compact", {"dryRun": True})
            assert tried.status_code == 200, tried.text
        said = both[0].post(f"{session}/entries", {"entries": [{"id": "gone", "role": "user",
            "content": "The password is tulip."}]})  # fmt: skip
        assert said.status_code == 200
        taken = both[1].post(f"{session}/invalidations", {"ids": ["gone"], "reason": "revoked"})
        assert taken.status_code == 200
        assert not any("tulip" in each.get(f"{session}/context").text for each in both)


def events(gateway: Shared, session: str, n_events: int, **headers: str) -> list[tuple[str, str]]:
    """Return id and data of the first ``entry`` events of a tail."""
    found: list[tuple[str, str]] = []
    path = f"/v1/sessions/{session}/tail"
    params = {} if headers else {"after": "start"}
    with gateway.http.stream("GET", path, params=params, headers=headers) as answer:
        assert answer.status_code == 200
        name = last = ""
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "id":
                last = value
            elif field == "data" and name == "entry":
                found.append((last, msgspec.json.decode(value)["id"]))
                if len(found) == n_events:
                    return found
    return found


def test_a_tail_goes_on_through_another_gateway_where_it_stopped(both: list[Shared]) -> None:
    for session in sessions_by_owner(both, "tailed").values():
        entries = [{"id": f"e{number}", "role": "user", "content": "x"} for number in range(6)]
        both[0].post(f"{session}/entries", {"entries": entries})
        begun = events(both[0], session, 3)
        rest = events(both[1], session, 3, **{"Last-Event-ID": begun[-1][0]})
        assert [name for _, name in begun + rest] == [entry["id"] for entry in entries]


def test_a_gateway_that_is_asked_by_another_and_is_not_the_owner_has_done_nothing(
    both: list[Shared],
) -> None:
    a, b = both
    session = sessions_by_owner(both, "stray")["a"]
    assert b.gateway.router is not None
    target = f"/v1/sessions/{session}/entries"
    caller = Principal(id="p", name="p", tenant="local", roles=frozenset({"publisher"}))
    headers = b.gateway.router.peers.signed("POST", target.encode(), caller)
    body = {"entries": [{"id": "e1", "role": "user", "content": "x"}]}
    answer = b.http.post(target, json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (503, "moving")
    assert UNTOUCHED in answer.headers
    assert a.get(f"{session}/entries").status_code == 404


@pytest.fixture(scope="module")
def guarded(both: list[Shared]) -> str:
    """A token; from its creation on nobody is let in without one. The last tests of the module."""
    return both[0].token("reader", "publisher", sessions=["mine-*"])


def test_absent_and_forbidden_are_the_same_answer_from_elsewhere_too(
    both: list[Shared], guarded: str
) -> None:
    headers = {"Authorization": f"Bearer {guarded}"}
    for names in zip(*(sessions_by_owner(both, each).values() for each in ("same", "mine")),
                     strict=True):  # fmt: skip
        for each in both:
            bodies = []
            for name in names:
                answer = each.http.get(f"/v1/sessions/{name}/context", headers=headers)
                assert answer.status_code == 404
                said = answer.json()
                assert said.pop("requestId") == answer.headers["x-request-id"]
                bodies.append(said)
            assert bodies[0] == bodies[1]


def test_nobody_vouches_without_the_secret(both: list[Shared], guarded: str) -> None:
    target = "/v1/sessions/same-0/context"
    caller = Principal(id="p", name="p", tenant="local", roles=frozenset({"reader"}))
    stranger = Peers(b"another secret altogether")
    signed = stranger.signed("GET", target.encode(), caller)
    assert both[0].http.get(target, headers=signed).status_code == 401
    assert both[0].http.get(target, headers={SIGNATURE: "x", PRINCIPAL: "y"}).status_code == 401


def test_a_signature_is_of_one_request_and_of_now(both: list[Shared], guarded: str) -> None:
    router = both[0].gateway.router
    assert router is not None
    caller = Principal(id="p", name="p", tenant="local", roles=frozenset({"reader"}))
    other = router.peers.signed("GET", b"/v1/sessions/same-1/context", caller)
    target = "/v1/sessions/same-0/context"
    assert both[0].http.get(target, headers=other).status_code == 401
    late = Peers(router.peers._secret, lambda: 0.0).signed("GET", target.encode(), caller)
    assert both[0].http.get(target, headers=late).status_code == 401
