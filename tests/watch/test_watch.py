"""Followed files: each complete line on the log once, under the ids an import would give."""

import random
from pathlib import Path

import pytest
from ombus.operator.verification import verify_folder
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject

from tests.cli.conftest import SAMPLE
from tests.importers.conftest import shared
from tests.importers.test_hand_built import claude, done, use
from tests.importers.test_pi import HEADER, called, row, said
from tests.watch.following import append, line, watching

__all__ = ["shared"]

PI = str(HEADER["id"])


def texts(entries: list[Entry]) -> list[str]:
    return [
        str(block["text"])
        for entry in entries
        if entry.message is not None
        for block in entry.message.content
        if "text" in block
    ]


def talk(text: str) -> JsonObject:
    return {"role": "user", "content": text}


def test_lines_are_appended_as_they_come_and_never_again(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, HEADER, said("a1", None, "user", "one"))
        assert watch.round() == 1
        assert watch.round() == 0
        append(path, said("a2", "a1", "assistant", "two"))
        assert watch.round() == 1
        watch.restart()
        assert watch.round() == 0
        append(path, said("a3", "a2", "user", "three"))

        assert watch.round() == 1
        assert watch.parents(PI) == {"a1": None, "a2": "a1", "a3": "a2"}
        assert watch.imports(path) == {"same": 3, "new": 0, "other": 0}
        assert verify_folder(watch.desk.engine).is_equal


def test_a_last_line_waits_for_its_end(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        whole = line(said("a1", None, "user", "one\u2028line"))
        append(path, HEADER, whole[:40])
        assert watch.round() == 0
        watch.restart()
        append(path, whole[40:-1])
        assert watch.round() == 0

        append(path, b"\r\n")

        assert watch.round() == 1
        assert texts(watch.entries(PI)) == ["one\u2028line"]


def test_a_complete_last_line_without_newline_is_taken_when_nobody_writes(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, HEADER, line(said("a1", None, "user", "one"))[:-1])
        assert watch.round() == 0
        assert watch.round(is_quiet=True) == 1

        append(path, b"\n", said("a2", "a1", "assistant", "two"))

        assert watch.round() == 1
        assert watch.parents(PI) == {"a1": None, "a2": "a1"}
        assert watch.imports(path)["other"] == 0


def test_a_message_of_several_lines_waits_for_the_next_one(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, claude("u1", None, "user", "go"))
        append(path, claude("a1", "u1", "assistant", use("c1"), mid="m1"))
        assert watch.round() == 1
        append(path, claude("a2", "a1", "assistant", use("c2"), mid="m1"))
        append(path, claude("r1", "a1", "user", done("c1")))
        assert watch.round() == 0
        append(path, claude("a3", "r1", "assistant", "next", mid="m2"))

        assert watch.round() == 2
        assert watch.round(is_quiet=True) == 1
        assert watch.parents("cc-1") == {"u1": None, "a1": "u1", "r1": "a1", "a3": "r1"}
        assert watch.imports(path) == {"same": 4, "new": 0, "other": 0}


def test_a_late_line_of_a_told_message_is_not_lost(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, claude("u1", None, "user", "go"))
        append(path, claude("a1", "u1", "assistant", use("c1"), mid="m1"))
        watch.round()
        assert watch.round(is_quiet=True) == 1

        append(path, claude("a2", "a1", "assistant", use("c2"), mid="m1"))
        watch.restart()

        assert watch.round(is_quiet=True) == 1
        assert watch.parents("cc-1") == {"u1": None, "a1": "u1", "a2": "a1"}


def test_a_rewind_is_a_fork_although_its_summary_comes_first(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, HEADER, said("a1", None, "user", "one"), said("a2", "a1", "assistant", "ok"))
        append(path, said("a3", "a2", "user", "left"))
        assert watch.round() == 3
        append(path, row("s1", "a2", {"fromId": "a3", "summary": "left"}, "branch_summary"))
        assert watch.round() == 0
        append(path, said("b3", "s1", "user", "right"))

        assert watch.round() == 2
        assert watch.parents(PI)["s1"] == "a2"
        assert watch.parents(PI)["b3"] == "s1"


def test_a_child_waits_for_a_late_parent(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, HEADER, said("a1", None, "user", "one"))
        append(path, said("a3", "a2", "user", "three"))
        assert watch.round() == 1
        append(path, said("a2", "a1", "assistant", "two"))

        assert watch.round() == 2
        assert watch.parents(PI) == {"a1": None, "a3": "a2", "a2": "a1"}


def test_without_backfill_only_what_comes_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "files" / "s.jsonl"
    path.parent.mkdir()
    append(path, HEADER, said("a1", None, "user", "one"), called("a2", "a1", "c1"))
    with watching(tmp_path, backfill=False) as watch:
        assert watch.round() == 0
        append(path, said("a3", "a2", "user", "three"))
        append(path, said("a4", "a3", "assistant", "four"))
        assert watch.round() == 2
        assert watch.parents(PI) == {"a3": None, "a4": "a3"}
        other = watch.folder / "new.jsonl"
        append(other, {**HEADER, "id": "new"}, said("n1", None, "user", "new"))
        assert watch.round() == 1

        watch.restart(backfill=True)

        assert watch.round() == 2
        assert watch.imports(path) == {"same": 4, "new": 0, "other": 0}


def test_ids_that_a_client_has_appended_are_left_out_and_parents_hold(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, HEADER, said("a1", None, "user", "one"))
        watch.round()
        own = Entry(
            id="a2",
            session_id=PI,
            tenant_id="acme",
            parent_id="a1",
            kind="event",
            schema_version=1,
        )
        watch.desk.append([own])
        append(path, said("a2", "a1", "assistant", "two"), said("a3", "a2", "user", "three"))

        assert watch.round() == 1
        assert watch.parents(PI) == {"a1": None, "a2": "a1", "a3": "a2"}


def test_a_session_goes_on_below_an_entry_that_is_on_the_log_alone(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        facts = {"session_id": PI, "tenant_id": "acme", "kind": "event", "schema_version": 1}
        watch.desk.append([Entry(id="x1", parent_id=None, **facts)])  # type: ignore[arg-type]
        watch.desk.catch_up()
        append(watch.folder / "s.jsonl", HEADER, said("a1", "x1", "user", "one"))

        assert watch.round() == 1
        assert watch.parents(PI)["a1"] == "x1"


def test_a_file_that_is_cut_goes_on_in_its_session(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "chat.jsonl"
        append(path, talk("one"), talk("two"))
        assert watch.round() == 2
        path.write_bytes(b"")
        watch.round()
        append(path, talk("three"))
        assert watch.round() == 1
        append(path, talk("four"))
        watch.restart()

        assert watch.round() == 1
        (session,) = watch.sessions()
        assert watch.parents(session) == {"L1": None, "L2": "L1", "L3": "L2", "L4": "L3"}
        assert texts(watch.entries(session)) == ["one", "two", "three", "four"]


def test_a_cut_pi_session_hangs_below_what_it_names(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, HEADER, said("a1", None, "user", "one"), called("a2", "a1", "c1"))
        watch.round()
        path.write_bytes(line(said("a3", "a2", "assistant", "three")))

        assert watch.round() == 1
        assert watch.parents(PI) == {"a1": None, "a2": "a1", "a3": "a2"}


def test_what_waited_is_told_when_the_file_is_cut(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, claude("u1", None, "user", "go"))
        append(path, claude("a1", "u1", "assistant", use("c1"), mid="m1"))
        assert watch.round() == 1

        path.write_bytes(line(claude("r1", "a1", "user", done("c1"))))

        assert watch.round() == 2
        assert watch.parents("cc-1") == {"u1": None, "a1": "u1", "r1": "a1"}


def test_a_file_written_anew_gives_only_what_is_new(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "chat.jsonl"
        append(path, talk("one"), talk("two"))
        watch.round()
        path.write_bytes(b"".join(line(talk(text)) for text in ("one", "2", "three")))

        assert watch.round() == 2
        (session,) = watch.sessions()
        assert texts(watch.entries(session)) == ["one", "two", "2", "three"]
        changed, last = watch.entries(session)[2:]
        assert changed.id.startswith("L2~")
        assert (changed.parent, last.parent) == ("L1", changed.id)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_rotated_file_is_read_to_its_end_and_the_new_one_goes_on(
    tmp_path: Path, is_restarted: bool
) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "chat.jsonl"
        append(path, talk("one"))
        watch.round()
        append(path, talk("two"))
        path.rename(watch.folder / "chat.jsonl.1")
        append(path, talk("three"))
        if is_restarted:
            watch.restart()

        assert watch.round() == 2
        (session,) = watch.sessions()
        assert texts(watch.entries(session)) == ["one", "two", "three"]
        assert watch.parents(session) == {"L1": None, "L2": "L1", "L3": "L2"}


def test_a_file_rotated_out_of_sight_is_read_to_its_end(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "chat.jsonl"
        append(path, talk("one"))
        watch.round()
        append(path, talk("two"))
        path.unlink()
        append(path, talk("three"))

        assert watch.round() == 2
        assert texts(watch.entries(watch.sessions()[0])) == ["one", "two", "three"]


def test_files_rotated_before_anybody_looked_are_read_in_order(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "chat.jsonl"
        for at, text in enumerate(("one", "two")):
            append(path, talk(text))
            path.rename(path.with_name(f"chat.jsonl.{2 - at}"))
        append(path, talk("three"))

        assert watch.round() == 3
        (session,) = watch.sessions()
        assert watch.parents(session) == {"L1": None, "L2": "L1", "L3": "L2"}
        assert texts(watch.entries(session)) == ["one", "two", "three"]


def test_a_copy_made_before_a_file_was_cut_is_read_for_its_end_alone(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "chat.jsonl"
        append(path, talk("one"))
        watch.round()
        append(path, talk("two"))
        path.with_name("chat.jsonl.1").write_bytes(path.read_bytes())
        path.write_bytes(line(talk("three")))

        assert watch.round() + watch.round() == 2
        (session,) = watch.sessions()
        assert sorted(texts(watch.entries(session))) == ["one", "three", "two"]


def test_documents_are_read_again_when_they_changed(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "chat.json"
        path.write_bytes(line({"messages": [talk("one")]}))
        watch.round()
        assert watch.round() == 1
        path.write_bytes(line({"messages": [talk("one"), talk("two")]}))
        assert watch.round() == 0  # It may still be written.

        assert watch.round() == 1
        watch.restart()
        assert watch.round() == 0
        assert texts(watch.entries(watch.sessions()[0])) == ["one", "two"]


def test_files_that_are_no_transcripts_are_left_alone(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        (watch.folder / "settings.json").write_text('{"theme": "dark"}')
        append(watch.folder / "metrics.jsonl", {"cpu": 1}, {"cpu": 2})
        append(watch.folder / "notes.txt", b"hello\n")

        assert watch.round() + watch.round(is_quiet=True) == 0
        assert watch.sessions() == []


def test_bad_lines_are_passed_over(tmp_path: Path) -> None:
    with watching(tmp_path) as watch:
        path = watch.folder / "s.jsonl"
        append(path, HEADER, said("a1", None, "user", "one"), b"{broken\n")
        append(path, said("a2", "a1", "assistant", "two"))

        assert watch.round() == 2


def parted(content: bytes, seed: int, n: int) -> list[bytes]:
    cuts = sorted(random.Random(seed).randrange(len(content)) for _ in range(n))
    return [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_session_that_grows_in_pieces_becomes_what_an_import_makes_of_it(
    tmp_path: Path, seed: int
) -> None:
    assert_same_as_imported(SAMPLE, tmp_path, seed)


@pytest.mark.parametrize(
    "name",
    [
        "claude-code/cc-edge-cases.jsonl",
        "claude-code/cc-redacted-thinking.jsonl",
        "codex/codex-2026-interrupted-calls.jsonl",
        "pi/pi-v3-badline-custom-entries.jsonl",
        "pi/pi-v1-tiny.jsonl",
        "om-ledger/prism-om-ledger-fixture.jsonl",
    ],
)
def test_real_files_that_grow_in_pieces_become_what_an_import_makes_of_them(
    shared: Path, tmp_path: Path, name: str
) -> None:
    assert_same_as_imported(shared / name, tmp_path, 3)


def assert_same_as_imported(source: Path, base: Path, seed: int) -> None:
    chance = random.Random(seed)
    with watching(base) as watch, watching(base / "other") as whole:
        path = watch.folder / source.name
        for piece in parted(source.read_bytes(), seed, 12):
            append(path, piece)
            watch.round()
            if chance.random() < 0.3:
                watch.restart()
        watch.round(is_quiet=True)
        other = whole.folder / source.name
        other.write_bytes(source.read_bytes())
        assert whole.imports(other)["new"] > 0

        assert watch.sessions() == whole.sessions()
        for session in whole.sessions():
            assert watch.entries(session) == whole.entries(session)
