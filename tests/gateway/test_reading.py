"""Reads over HTTP: what they say, at which position, and what they never say again."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.serving import Running, running

PAIRS = 300
LOW = """
[observational-memory.context]
recentMessages = 2
"""


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(tmp_path_factory.mktemp("reads"), toml=LOW) as found:
        texts = [f"The ferry number {n} leaves at {n}:15 from pier {n}." for n in range(8)]
        found.append("ferry", *texts)
        answer = found.post("ferry/flush", {})
        assert answer.json()["status"] == "completed", answer.text
        yield found


def test_reads_name_leaf_position_and_a_hash_that_changes_with_the_content(
    served: Running,
) -> None:
    served.append("read-1", "one")
    first = served.get("read-1/context").json()
    assert served.get("read-1/context").json() == first
    position = served.append("read-1", "two")["position"]
    second = served.get("read-1/context", atLeast=position)
    assert second.json()["hash"] != first["hash"]
    assert second.headers["ombus-position"] == second.json()["position"]


def test_as_of_answers_as_the_log_stood(served: Running) -> None:
    served.append("read-2", "one")
    then = served.get("read-2/context").json()
    position = served.append("read-2", "two")["position"]
    now = served.get("read-2/context", atLeast=position).json()
    again = served.get("read-2/context", asOf=then["position"]).json()
    assert again["blocks"] == then["blocks"] != now["blocks"]


def test_a_session_is_there_as_soon_as_it_is_appended(served: Running) -> None:
    for n in range(20):
        served.append(f"new-{n}", "one")
        assert served.get(f"new-{n}/status").status_code == 200


def test_pages_of_entries_go_on_where_the_last_one_ended(served: Running) -> None:
    position = served.append("read-3", *map(str, range(7)))["position"]
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = served.get("read-3/entries", limit=3, atLeast=position, **after).json()
        seen += [each["message"]["content"][0]["text"] for each in page["entries"]]
        if "next" not in page:
            break
        after = {"after": page["next"]}
    assert seen == list(map(str, range(7)))


def test_context_is_bounded_by_the_hosts_tokens(served: Running) -> None:
    position = served.append("read-4", *("word " * 200 for _ in range(4)))["position"]
    small = served.get("read-4/context", atLeast=position, maxTokens=260).json()
    large = served.get("read-4/context", atLeast=position).json()
    assert len(small["blocks"][-1]["content"]) < len(large["blocks"][-1]["content"])


def test_a_memory_leads_back_to_its_source(remembered: Running) -> None:
    view = remembered.get("ferry/view").json()["view"]["text"]
    memory = view.split("## Observations")[1].split("[")[1].split("]")[0]
    found = remembered.get(f"ferry/memories/{memory}").json()["recalled"]
    assert found["found"] is True
    source = found["sourceEntries"][0]
    page = remembered.get("ferry/pages", cursor=source["id"], limit=1).json()["page"]
    assert page["entries"][0]["id"] == source["id"]


def test_an_unknown_memory_is_not_found_as_the_tool_says_it(remembered: Running) -> None:
    found = remembered.get("ferry/memories/0123456789ab").json()["recalled"]
    assert (found["found"], found["reason"]) == (False, "not_found")


def test_a_dry_run_says_what_a_compaction_then_does(remembered: Running) -> None:
    would = remembered.post("ferry/compact", {"dryRun": True}).json()
    assert would["status"] == "would_compact"
    before = remembered.get("ferry/rebuild").json()
    done = remembered.post("ferry/compact", {}).json()
    assert done["status"] == "completed"
    same = ("through", "observations", "reflections", "summaryBytes")
    assert {name: done.get(name) for name in same} == {name: would.get(name) for name in same}
    after = remembered.get("ferry/rebuild").json()
    assert len(after["messages"]) < len(before["messages"]) == 8
    assert len(after["summaries"]) == 1
    assert remembered.post("ferry/compact", {}).json()["status"] == "refused"


def test_the_same_request_id_asks_for_the_same_flush(served: Running) -> None:
    served.append("read-5", "one")
    first = served.post("read-5/flush", {"id": "f1"}).json()
    again = served.post("read-5/flush", {"id": "f1"}).json()
    assert first == again
    assert first["status"] == "completed"


def test_no_compaction_while_the_hosts_run_is_active(served: Running) -> None:
    served.append("read-6", "one")
    assert served.post("read-6/runs/r1/started", {}).status_code == 200
    would = served.post("read-6/compact", {"dryRun": True}).json()
    assert would["reason"] == "run_active"
    assert served.post("read-6/runs/r1/finished", {}).status_code == 200
    would = served.post("read-6/compact", {"dryRun": True}).json()
    assert would["reason"] == "nothing_folded"


def test_what_is_invalidated_is_in_no_answer_any_more(tmp_path: Path) -> None:
    with running(tmp_path / "data", toml=LOW) as served:
        secret = {
            "id": "m0",
            "role": "user",
            "content": "We decided: marmalade must be on the 7:15 ferry.",
        }
        served.post("gone/entries", {"entries": [secret]})
        served.append("gone", *(f"The ferry {n} leaves at {n}:15." for n in range(4)))
        assert served.post("gone/flush", {}).json()["observations"] > 0
        assert served.post("gone/compact", {}).json()["status"] == "completed"
        assert "marmalade" in served.get("gone/view").text
        done = served.post("gone/invalidations", {"ids": ["m0"], "reason": "revoked"})
        assert done.status_code == 200, done.text
        paths = ("entries", "context", "rebuild", "view?mode=full", "status", "pages?cursor=m0")
        for path in paths:
            assert "marmalade" not in served.http.get(f"/v1/sessions/gone/{path}").text, path
        assert served.get("gone/entries").json()["withheld"] == 1
        tail = read_tail(served, "gone", done.json()["position"])
        assert "marmalade" not in tail
        assert '"withheld":true' in tail


def test_what_became_a_secret_later_is_in_no_answer(tmp_path: Path) -> None:
    with running(tmp_path / "data") as served:
        served.append("s", "the password is tangerine-9000 for now")
    secrets = tmp_path / "secrets.txt"
    secrets.write_text("tangerine-9000\n")
    with running(tmp_path / "data", toml=f'secrets-file = "{secrets}"') as served:
        last = served.append("s", "later")["position"]
        for path in ("entries", "context", "rebuild", "view", "pages?cursor=m0"):
            answer = served.http.get(f"/v1/sessions/s/{path}", params={"atLeast": last})
            assert "tangerine" not in answer.text, path
        tail = read_tail(served, "s", last)
        assert "password" in tail
        assert "tangerine" not in tail


def read_tail(served: Running, session: str, last: str) -> str:
    text = ""
    path = f"/v1/sessions/{session}/tail"
    with served.http.stream("GET", path, params={"after": "start"}) as stream:
        for chunk in stream.iter_text():
            text += chunk
            if f"id: {last}" in text:
                return text
    raise AssertionError(f"{last} did not come: {text}")


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"asOf": "nonsense"}, 400, "bad_position"),
        ({"asOf": f"0123456789abcdef:1:{'9' * 5_000}"}, 400, "bad_position"),
        ({"asOf": "0123456789abcdef:0:1"}, 410, "position_gone"),
        ({"atLeast": "0123456789abcdef:0:1"}, 410, "position_gone"),
        ({"leaf": "nobody"}, 404, "no_leaf"),
        ({"maxTokens": "many"}, 400, "bad_request"),
        ({"recent": "-1"}, 400, "bad_request"),
        ({"recent": "1e400"}, 400, "bad_request"),
    ],
)
def test_what_cannot_be_answered_says_why(
    served: Running, params: dict[str, str], status: int, code: str
) -> None:
    served.append("read-7", "one")
    answer = served.get("read-7/context", **params)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_position_past_the_end_is_not_waited_for(served: Running) -> None:
    position = served.append("read-8", "one")["position"]
    log, partition, offset = position.split(":")
    answer = served.get("read-8/context", atLeast=f"{log}:{partition}:{int(offset) + 1_000_000}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_position")


def test_an_owner_that_does_not_fold_is_said_to_be_behind(tmp_path: Path) -> None:
    with running(tmp_path / "data") as owner:
        owner.append("s", "one")
    with running(tmp_path / "data", folds=False) as beside:
        position = beside.append("s", "two")["position"]
        answer = beside.get("s/context", atLeast=position, waitSeconds=0)
        assert (answer.status_code, answer.json()["code"]) == (503, "behind")
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["folded"]


def test_every_write_is_read_through_another_gateway(tmp_path: Path) -> None:
    with running(tmp_path / "data") as first, running(tmp_path / "data", folds=False) as second:
        instances: set[tuple[str, str]] = set()
        missed = 0
        for n in range(PAIRS):
            session = f"s{n % 7}"
            entry = {"id": f"m{n}", "role": "user", "content": f"write {n}"}
            written = first.post(f"{session}/entries", {"entries": [entry]})
            read = second.get(f"{session}/context", atLeast=written.json()["position"], recent=1)
            missed += f"write {n}" not in read.text
            instances.add(tuple(_instance(each) for each in (written, read)))  # type: ignore[arg-type]  # of two
        assert missed == 0
        assert instances == {(first.gateway.instance, second.gateway.instance)}
        assert first.gateway.instance != second.gateway.instance


def _instance(answer: httpx.Response) -> str:
    return answer.headers["ombus-instance"]
