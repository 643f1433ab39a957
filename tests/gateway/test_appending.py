"""Appends over HTTP: results, duplicates, verdicts, refusals."""

import re

import pytest

from tests.gateway.serving import Running

POSITION = re.compile(r"[0-9a-f]{16}:\d:\d+")


def test_each_entry_is_answered_with_its_position(served: Running) -> None:
    answer = served.append("append-1", "one", "two")
    positions = [each["position"] for each in answer["results"]]
    assert all(POSITION.fullmatch(each) for each in positions)
    assert answer["position"] == positions[-1]
    assert [each["status"] for each in answer["results"]] == ["appended", "appended"]


def test_entries_hang_on_the_one_before_and_then_on_the_default_leaf(served: Running) -> None:
    first = served.append("append-2", "one", "two")
    served.append("append-2", "three")
    entries = served.get("append-2/entries", atLeast=first["position"]).json()["entries"]
    assert [each["parentId"] for each in entries] == [None, entries[0]["id"], entries[1]["id"]]


def test_sending_the_same_again_appends_nothing(served: Running) -> None:
    body = {"entries": [{"id": "m1", "role": "user", "content": "one"}]}
    assert served.post("append-3/entries", body).json()["results"][0]["status"] == "appended"
    again = served.post("append-3/entries", body).json()
    assert again["results"][0]["status"] == "duplicate"
    read = served.get("append-3/entries", atLeast=again["position"]).json()
    assert [each["id"] for each in read["entries"]] == ["m1"]


def test_an_id_taken_by_other_content_is_refused_and_the_rest_taken(served: Running) -> None:
    served.post("append-4/entries", {"entries": [{"id": "m1", "role": "user", "content": "one"}]})
    answer = served.post(
        "append-4/entries",
        {
            "entries": [
                {"id": "m1", "role": "user", "content": "other"},
                {"id": "m2", "role": "user", "content": "two"},
                {"id": "m3", "kind": "nonsense"},
                {"id": "m4", "role": "user"},
            ]
        },
    )
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    results = answer.json()["results"]
    assert [(each["status"], each.get("code")) for each in results] == [
        ("rejected", "id_taken"),
        ("appended", None),
        ("rejected", "kind"),
        ("rejected", "schema"),
    ]


def test_the_loser_of_an_expected_leaf_is_answered_409_after_the_fold(served: Running) -> None:
    served.post("append-5/entries", {"entries": [{"id": "a", "role": "user", "content": "one"}]})

    def claim(name: str) -> int:
        entry = {"id": name, "role": "assistant", "content": name, "expectedLeaf": "a"}
        return served.post("append-5/entries", {"entries": [entry]}).status_code

    assert (claim("winner"), claim("loser")) == (200, 409)
    branches = served.get("append-5/branches").json()["branches"]
    assert [each["leaf"] for each in branches] == ["winner"]


def test_memory_cannot_be_forged(served: Running) -> None:
    forged = {"kind": "custom", "side": True, "data": {"type": "om.observations.recorded"}}
    answer = served.post("append-6/entries", {"entries": [forged]})
    assert answer.status_code == 422
    assert answer.json()["results"][0]["code"] == "forbidden"


def test_another_session_is_not_reached_through_the_body(served: Running) -> None:
    entry = {"role": "user", "content": "x", "sessionId": "elsewhere"}
    answer = served.post("append-7/entries", {"entries": [entry]})
    assert answer.json()["results"][0]["code"] == "session"
    assert served.get("elsewhere/status").status_code == 404


def test_a_body_that_is_none_is_a_bad_request_that_quotes_nothing(served: Running) -> None:
    for body in (b"{", b"[]", b'{"entries": 3}', b'{"entries": []}', b"\xff", b"[" * 100_000):
        answer = served.http.post("/v1/sessions/append-8/entries", content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("entries", b"x", "the body is no JSON: a JSON object is expected"),
        ("entries", b'["hunter2"]', "the body does not fit: expected `object`, got `array`"),
        (
            "entries",
            b'{"hunter2":["hunter2"]}',
            "the body does not fit: object missing required field `entries`",
        ),
        (
            "entries",
            b'{"entries":"hunter2"}',
            "the body does not fit: expected `array`, got `str`, at `$.entries`",
        ),
        (
            "entries",
            b'{"entries":[]}',
            "the body does not fit: expected `array` of length >= 1, at `$.entries`",
        ),
        (
            "invalidations",
            b'{"ids":["a"],"reason":"hunter2"}',
            "the body does not fit: it takes one of corrected, deleted, revoked, at `$.reason`",
        ),
    ],
)
def test_a_body_that_does_not_fit_is_told_where_and_what_is_expected_and_not_quoted(
    served: Running, path: str, body: bytes, detail: str
) -> None:
    served.append("append-misfit", "one")

    answer = served.http.post(f"/v1/sessions/append-misfit/{path}", content=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert answer.json()["detail"] == detail
    assert "hunter2" not in answer.text
