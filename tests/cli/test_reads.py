"""Commands that read: which session, which leaf, as of when, and what they exit with."""

import re

import msgspec
import pytest
from ombus_schemas.jsontext import JsonObject

from tests.cli.conftest import SAMPLE, Cli

MEMORY_ID = re.compile(r"^- \[([a-f0-9]{12})\]", re.M)
TALK = "\n".join(
    [
        '{"role":"user","content":"Never push to main.","id":"a"}',
        '{"role":"assistant","content":"Noted.","id":"b"}',
        '{"role":"user","content":"Use tabs, not spaces.","id":"c"}',
    ]
)
FORK = '{"role":"user","content":"Use spaces after all.","id":"d","parentId":"b"}'


def ids(text: str) -> list[str]:
    return MEMORY_ID.findall(text)


def invalidation(name: str, *sources: str) -> str:
    body: JsonObject = {"type": "om.sources.invalidated", "ids": list(sources), "reason": "revoked"}
    entry: JsonObject = {"id": name, "kind": "custom", "side": True, "data": body}
    return msgspec.json.encode(entry).decode()


def test_without_a_log_reads_say_where_they_looked(cli: Cli) -> None:
    for command in ("sessions", "status", "view", "flush", "verify", "rebuild", "tail"):
        done = cli(command)
        assert done.code == 2
        assert "[no_data]" in done.err


def test_the_only_session_need_not_be_named_and_of_several_one_must(cli: Cli) -> None:
    cli("append", "s1", stdin=TALK)
    assert cli("view").code == 0
    cli("append", "s2", stdin=TALK)

    done = cli("view")

    assert done.code == 2
    assert "2 sessions (local/s1, local/s2)" in done.err
    assert cli("view", "--session", "local/s2").code == 0
    assert cli("view", "--session", "s3").code == 2


def test_every_id_that_view_prints_recalls(remembered: Cli) -> None:
    printed = ids(remembered("view").out) + ids(remembered("view", "--full").out)

    assert len(printed) > 30
    for memory_id in dict.fromkeys(printed):
        found = remembered("recall", memory_id, "--json").json()
        assert found["found"] is True


def test_recall_of_what_is_not_there_is_a_finding(remembered: Cli) -> None:
    done = remembered("recall", "abcdefabcdef")
    assert done.code == 1
    assert done.out == "Nothing recorded here has the id abcdefabcdef.\n"
    assert done.err.startswith("ombus: abcdefabcdef is not in the memory of local/")
    assert "try another --session or --leaf" in done.err


def test_recall_of_what_is_no_memory_id_is_misuse(remembered: Cli) -> None:
    done = remembered("recall", "no-id")

    assert done.code == 2
    assert done.out.startswith("Not a memory id: give the twelve hex digits")
    assert done.err == ""
    assert remembered("explain", "no-id") == done


def test_reads_name_their_leaf_and_position(remembered: Cli) -> None:
    for command in (("view",), ("context",), ("status",), ("page", "none"), ("recall", "none")):
        found = remembered(*command, "--json").json()
        assert str(found["leaf"])
        assert str(found["position"]).count(":") == 2


def test_context_is_the_memory_then_the_recent_messages(remembered: Cli) -> None:
    blocks = remembered("context", "--json").json()["blocks"]

    assert [block["title"] for block in blocks] == ["observational-memory", "recent-messages"]
    assert "<recent-messages>" in remembered("context").out


def test_a_leaf_may_be_any_entry_of_the_tree(cli: Cli) -> None:
    cli("append", "s1", stdin=TALK)
    cli("append", "s1", stdin=FORK)

    shown = {leaf: cli("context", "--leaf", leaf).out for leaf in ("b", "c", "d")}

    assert "Use tabs" in shown["c"]
    assert "Use spaces" not in shown["c"]
    assert "Use spaces" in shown["d"]
    assert "Use" not in shown["b"]
    assert cli("context", "--json").json()["leaf"] == "d"
    assert cli("context", "--leaf", "zz").code == 2


def test_as_of_answers_as_the_log_stood_then(cli: Cli) -> None:
    cli("append", "s1", stdin=TALK)
    cli("flush")
    then = cli("view", "--json").json()
    cli("append", "s1", stdin='{"role":"user","content":"Always sign the tags.","id":"e"}')
    cli("flush")

    now = cli("view", "--json").json()
    again = cli("view", "--as-of", then["position"], "--json").json()

    assert "sign the tags" in str(now["text"])
    assert again == then


def test_as_of_shows_nothing_that_was_invalidated_since(cli: Cli) -> None:
    cli("append", "s1", stdin=TALK)
    cli("flush")
    then = cli("view", "--json").json()
    memory_id = next(
        each for each in ids(str(then["text"])) if "Never push" in cli("recall", each).out
    )
    assert cli("append", "s1", stdin=invalidation("i1", "a")).code == 0

    for command in (("view",), ("context",), ("recall", memory_id), ("page", "c")):
        done = cli(*command, "--as-of", then["position"])
        assert "Never push" not in done.out
    assert "Never push" not in cli("view").out
    assert "Use tabs" in cli("view", "--as-of", then["position"]).out


def test_positions_that_are_none_are_refused_and_those_of_another_log_are_gone(cli: Cli) -> None:
    cli("append", "s1", stdin=TALK)
    position = str(cli("view", "--json").json()["position"])
    incarnation, partition, offset = position.split(":")
    other = (int(partition) + 1) % 8

    wrong = {
        "nonsense": "[bad_position]",
        f"{incarnation}:{other}:1": "[bad_position]",
        f"{incarnation}:{partition}:{int(offset) + 1}": "[bad_position]",
        f"{incarnation[::-1]}:{partition}:{offset}": "[410]",
    }
    for text, code in wrong.items():
        done = cli("view", "--as-of", text)
        assert done.code == 2
        assert code in done.err
    assert cli("view", "--as-of", position).code == 0


def test_pages_go_both_ways(cli: Cli) -> None:
    cli("append", "s1", stdin=TALK)

    back = cli("page", "c", "--limit", 2, "--json").json()
    ahead = cli("page", "a", "--forward", "--limit", 2, "--json").json()

    assert [entry["id"] for entry in back["entries"]] == ["b", "c"]
    assert [entry["id"] for entry in ahead["entries"]] == ["a", "b"]
    assert '"role":"user"' in cli("page", "c", "--full").out
    none = cli("page", "zz")
    assert none.code == 1
    assert none.out == "No entry of this branch has the cursor's id.\n"
    assert none.err.startswith("ombus: zz is no entry of local/")
    assert "try another --session or --leaf" in none.err
    for limit in (0, 101):
        assert cli("page", "c", "--limit", limit).code == 2


def test_a_secret_that_is_named_later_is_in_no_answer(
    remembered: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_id = ids(remembered("view").out)[-1]
    known = remembered("recall", memory_id, "--json").json()
    content, source = known["observation"]["content"], known["sourceEntries"][0]["id"]
    secret = max(content.split(), key=len)
    monkeypatch.setenv("OMBUS_REDACT_ENV", "LATER")
    monkeypatch.setenv("LATER", secret)

    for command in (("recall", memory_id), ("page", source)):
        for form in ((), ("--json",)):
            done = remembered(*command, *form)
            assert secret not in done.out
            assert "[REDACTED]" in done.out


def test_status_says_what_is_pending_and_what_was_compacted(remembered: Cli) -> None:
    remembered("compact")
    found = remembered("status", "--json").json()

    assert found["pending"] == {"sources": 0, "tokens": 0, "threshold": 1_000}
    assert found["compactedThrough"]
    assert found["waiting"] == []
    assert "Workers: idle" in remembered("status").out


def test_sessions_lists_what_there_is(remembered: Cli) -> None:
    found = remembered("sessions", "--json").json()

    assert found["branches"] == 1
    assert "OBSERVATIONS" in remembered("sessions").out


def test_tail_shows_the_last_records_of_one_session_or_all(cli: Cli) -> None:
    cli("append", "s1", stdin=TALK)
    cli("append", "s2", stdin=TALK)

    assert len(cli("tail", "-n", 4).out.splitlines()) == 4
    last = cli("tail", "-s", "s1", "-n", 1, "--json").json()
    assert last["session"] == "local/s1"
    assert "c user: Use tabs" in str(last["gist"])
    assert cli("tail", "-n", 0).out == ""


def test_a_sample_is_imported_under_its_own_session(cli: Cli) -> None:
    cli("import", SAMPLE)
    assert str(cli("sessions", "--json").json()["session"]).startswith("local/")
