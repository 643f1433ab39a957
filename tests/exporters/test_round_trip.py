"""What is exported comes home: the same ids, the same fold, the same memory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from ombus.exporters import export_ombus, export_pi
from ombus.importers import Imported, open_transcripts
from ombus.operator.control import control_entry
from ombus.operator.verification import verify_folder
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject

from tests.cli.conftest import SAMPLE
from tests.exporters.folders import Folder, leaf_of, memory_of
from tests.importers.conftest import Written, shared, written
from tests.importers.test_pi import HEADER, answered, called, row, said

__all__ = ["shared", "written"]

FERRY = b"acme/1fa86c6a-bd3a-5bb4-8db0-7742987f6e37"
FORKED = b"acme/" + str(HEADER["id"]).encode()


@pytest.fixture
def forked(written: Written) -> Path:
    """A pi session with a fork, whose branches both reach thresholds, and a late parent."""
    words = "The harbour master wants the blue crane moved before the ferry of nine. " * 30
    rows: list[JsonObject] = [said("00000001", None, "user", f"one {words}")]
    rows.append(said("00000002", "00000001", "assistant", f"answer {words}"))
    rows.append(called("00000003", "00000002", "c1"))
    rows.append(answered("00000004", "00000003", "c1"))
    for branch in "ab":
        parent = "00000004"
        for at in range(1, 6):
            name = f"{branch}000000{at}"
            role = "user" if at % 2 else "assistant"
            rows.append(said(name, parent, role, f"{branch}{at} {words}"))
            parent = name
    rows.append(row("b0000007", "b0000006", {"name": "late child"}, "session_info"))
    rows.append(said("b0000006", "b0000005", "assistant", f"late parent {words}"))
    return written(HEADER, *rows, name="forked.jsonl")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Folder]:
    with closing(Folder(tmp_path / "home", low=True)) as folder:
        yield folder


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Folder]:
    with closing(Folder(tmp_path / "away")) as folder:
        yield folder


def exported(folder: Folder, key: bytes, path: Path) -> Path:
    path.write_bytes(b"".join(export_ombus(folder.desk.engine, key)))
    return path


def taken_to_pi(folder: Folder, key: bytes, path: Path) -> Path:
    with folder.session(key) as session:
        path.write_bytes(b"".join(export_pi(session)))
    return path


@pytest.mark.parametrize("key", [FERRY, FORKED])
def test_our_export_folds_to_the_same_rows_in_another_folder(
    key: bytes, home: Folder, away: Folder, forked: Path, tmp_path: Path
) -> None:
    home.imports(SAMPLE, forked)
    home.remembers(key)
    body: JsonObject = {"type": "om.sources.invalidated", "ids": ["00000002"], "reason": "revoked"}
    home.desk.append([control_entry(home.desk, key, None, body)])

    (intake,) = away.imports(exported(home, key, tmp_path / "export.jsonl"))

    assert (intake.n_skipped, intake.n_conflicts) == (0, 0)
    # Everything a fold keeps is compared, byte by byte; both clocks stand still.
    assert away.rows(key) == home.rows(key)
    names = {entry.data_type for entry in entries_of(home, key)}
    assert {"om.observations.recorded", "om.reflections.recorded", "om.settings.changed"} <= names
    assert any(entry.kind == "compaction" for entry in entries_of(home, key))
    again = exported(away, key, tmp_path / "again.jsonl")
    assert again.read_bytes() == (tmp_path / "export.jsonl").read_bytes()


def test_importing_an_export_twice_or_into_its_own_log_adds_nothing(
    home: Folder, away: Folder, tmp_path: Path
) -> None:
    home.imports(SAMPLE)
    home.remembers(FERRY)
    path = exported(home, FERRY, tmp_path / "export.jsonl")
    n_lines = len(path.read_bytes().splitlines())
    away.imports(path)

    for folder in (away, home):
        (intake,) = folder.imports(path)
        assert (intake.entries, intake.duplicates, intake.n_conflicts) == (0, n_lines, 0)
    assert verify_folder(away.desk.engine).is_equal


def test_an_entry_whose_parent_is_lost_stays_lost(away: Folder, tmp_path: Path) -> None:
    facts: JsonObject = {"sessionId": "s", "tenantId": "acme", "schemaVersion": 1, "kind": "event"}
    lines = [{"id": "e1", "parentId": None, **facts}, {"id": "e2", "parentId": "gone", **facts}]
    path = tmp_path / "cut.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))

    away.imports(path)

    with away.session(b"acme/s") as session:
        assert session.head.n_parked == 1


@pytest.mark.parametrize("key", [FERRY, FORKED])
def test_the_pi_export_reads_back_to_the_same_memory_in_every_branch(
    key: bytes, home: Folder, away: Folder, forked: Path, tmp_path: Path
) -> None:
    home.imports(SAMPLE, forked)
    home.remembers(key)
    path = taken_to_pi(home, key, tmp_path / "home.jsonl")

    (intake,) = away.imports(path)

    assert (intake.format, intake.n_skipped, intake.n_conflicts) == ("pi", 0, 0)
    with home.session(key) as ours, away.session(key) as theirs:
        assert memory_of(theirs, leaf_of(theirs)) == memory_of(ours, leaf_of(ours))
        assert memory_of(ours, leaf_of(ours))["active"]
        assert memory_of(ours, leaf_of(ours))["reflections"]
        assert len(theirs.segments()) == len(ours.segments())
        for segment in ours.segments():
            mine, other = (memory_of(one, one.leaf(segment)) for one in (ours, theirs))
            assert {name: set(ids) for name, ids in other.items()} == {
                name: set(ids) for name, ids in mine.items()
            }
    assert verify_folder(away.desk.engine).is_equal


def test_the_pi_export_keeps_to_the_format(home: Folder, forked: Path, tmp_path: Path) -> None:
    home.imports(forked)
    home.remembers(FORKED)

    lines = taken_to_pi(home, FORKED, tmp_path / "pi.jsonl").read_bytes().splitlines()

    header, *rows = [msgspec.json.decode(line) for line in lines]
    assert (header["type"], header["version"], header["id"]) == ("session", 3, HEADER["id"])
    assert header["cwd"] == "/work"
    seen: set[str | None] = {None}
    for each in rows:
        assert len(each["id"]) == 8
        assert int(each["id"], 16) >= 0
        assert each["id"] not in seen
        assert each["parentId"] in seen
        assert {"type", "id", "parentId", "timestamp"} <= set(each)
        seen.add(each["id"])
    assert {each["type"] for each in rows} >= {"message", "custom", "compaction", "session_info"}
    kinds = {each["customType"] for each in rows if each["type"] == "custom"}
    assert kinds <= {
        "om.observations.recorded",
        "om.reflections.recorded",
        "om.observations.dropped",
    }
    (compaction,) = [each for each in rows if each["type"] == "compaction"]
    assert compaction["details"]["type"] == "om.folded"
    assert compaction["firstKeptEntryId"] in seen
    recorded = [each for each in rows if each.get("customType") == "om.observations.recorded"]
    for item in (item for each in recorded for item in each["data"]["observations"]):
        assert set(item) == {
            "id",
            "content",
            "timestamp",
            "relevance",
            "sourceEntryIds",
            "tokenCount",
        }
        assert item["timestamp"] == "2026-05-01 12:00"
        assert set(item["sourceEntryIds"]) <= seen


def test_a_pi_file_that_nobody_changed_comes_back_as_it_was(
    home: Folder, written: Written, tmp_path: Path
) -> None:
    rows = [
        said("00000001", None, "user", [{"type": "text", "text": "one"}]),
        called("00000002", "00000001", "c1"),
        answered("00000003", "00000002", "c1"),
        row("00000004", "00000003", {"thinkingLevel": "high"}, "thinking_level_change"),
        row("00000005", "00000004", {"provider": "p", "modelId": "m"}, "model_change"),
        row("00000006", "00000005", {"customType": "plan", "data": {"step": 1}}, "custom"),
        row("00000007", "00000006", {"targetId": "00000001", "label": "start"}, "label"),
    ]
    home.imports(written(HEADER, *rows))

    lines = taken_to_pi(home, FORKED, tmp_path / "pi.jsonl").read_bytes().splitlines()

    back = [msgspec.json.decode(line) for line in lines[1:]]
    assert [each["id"] for each in back] == [each["id"] for each in rows]
    for ours, native in zip(back[3:], rows[3:], strict=True):
        assert ours == native
    assert back[0]["message"]["content"] == [{"type": "text", "text": "one"}]


def test_what_was_revoked_is_in_no_pi_export(home: Folder, forked: Path, tmp_path: Path) -> None:
    home.imports(forked)
    home.remembers(FORKED)
    body: JsonObject = {"type": "om.sources.invalidated", "ids": ["b0000005"], "reason": "revoked"}
    home.desk.append([control_entry(home.desk, FORKED, None, body)])

    text = taken_to_pi(home, FORKED, tmp_path / "pi.jsonl").read_bytes()

    assert b"b5 The harbour" not in text
    assert b"b4 The harbour" in text


def test_real_sessions_come_home(shared: Path, home: Folder, away: Folder, tmp_path: Path) -> None:
    path = shared / "pi" / "pi-v3-badline-custom-entries.jsonl"
    (intake,) = home.imports(path)
    key = intake.session.encode()
    home.desk.settle()

    away.imports(exported(home, key, tmp_path / "export.jsonl"))

    assert away.rows(key) == home.rows(key)


def entries_of(folder: Folder, key: bytes) -> list[Entry]:
    found = folder.desk.engine.log.of_key(key)
    return [msgspec.json.decode(record.value or b"", type=Entry) for record in found]


def test_pi_export_names_are_stable(home: Folder, forked: Path, tmp_path: Path) -> None:
    home.imports(forked)

    first = taken_to_pi(home, FORKED, tmp_path / "1.jsonl").read_bytes()

    assert taken_to_pi(home, FORKED, tmp_path / "2.jsonl").read_bytes() == first
    items = [
        item for each in open_transcripts(tmp_path / "1.jsonl", tenant="acme") for item in each
    ]
    assert sum(isinstance(item, Imported) for item in items) == len(first.splitlines()) - 1
