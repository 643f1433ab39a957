"""``explain settings doctor backup``: what an operator asks, and what is answered."""

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from ombus.gateway.tokens import Tokens
from ombus.operator.origins import parsed
from ombus.settings import BadSetting, load_settings
from ombus.wiring import Engine, open_engine, state_folder
from ombus_schemas.entries import Entry
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.keys import head as head_key
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.scheduler import MAX_ATTEMPTS, Attempts

from tests.cli.conftest import LOW, SAMPLE, Cli
from tests.support.sessions import observations, observed

POOL = """observationsPoolMaxTokens = 400
observationsPoolTargetTokens = 200
"""
"""Under ``LOW``'s ``[observational-memory.context]``: a payload that cannot hold everything."""
SESSION = "1fa86c6a-bd3a-5bb4-8db0-7742987f6e37"


@contextmanager
def opened(folder: Path) -> Iterator[Engine]:
    engine = open_engine(load_settings({"data": str(folder)}, {}, []), owns=False)
    try:
        yield engine
    finally:
        engine.close()


def records(cli: Cli) -> list[JsonObject]:
    return [line["entry"] for line in cli("tail", "-n", "1000", "--json").lines() if line["entry"]]


def bodies(cli: Cli, kind: str) -> list[JsonObject]:
    found = [entry["data"] for entry in records(cli) if isinstance(entry.get("data"), dict)]
    return [data for data in found if isinstance(data, dict) and data.get("type") == kind]


def told(cli: Cli, memory_id: object) -> str:
    done = cli("explain", memory_id)
    assert done.code == 0, done.err
    return done.out


def test_explain_tells_who_recorded_a_memory_and_that_it_was_dropped(remembered: Cli) -> None:
    (record,) = bodies(remembered, "om.observations.dropped")
    (memory_id,) = msgspec.convert(record["observationIds"], list[str])

    text = told(remembered, memory_id)

    first, content, source, recorded, dropped = text.splitlines()
    assert re.fullmatch(rf"observation {memory_id} \(\w+\): dropped", first)
    assert content
    assert source.startswith("from ")
    assert re.search(
        r"recorded by om:observer:\w{24}, run \w{24}, provider extractive, .*prompt ", recorded
    )
    assert re.search(r"dropped \(pruned\) by om:dropper:\w{24}, run \w{24}", dropped)


def test_explain_tells_what_a_payload_had_no_room_for(cli: Cli) -> None:
    Path("ombus.toml").write_text(LOW + POOL)
    assert cli("import", SAMPLE).code == 0
    assert cli("compact").code == 0
    compacted = next(each for each in records(cli) if each["kind"] == "compaction")
    payload = msgspec.convert(compacted["data"], dict[str, JsonValue])["memory"]
    kept = {str(each["id"]) for each in msgspec.convert(payload, Payload).observations}
    gone = {
        memory_id
        for body in bodies(cli, "om.observations.dropped")
        for memory_id in msgspec.convert(body["observationIds"], list[str])
    }
    everything = {
        str(item["id"])
        for body in bodies(cli, "om.observations.recorded")
        for item in msgspec.convert(body, Payload).observations
    }
    memory_id = min(everything - kept - gone)

    found = cli("explain", memory_id, "--json").json()

    assert found["state"] == "trimmed"
    assert [event["what"] for event in found["events"]] == ["recorded", "trimmed"]
    assert found["events"][1]["entryId"] == compacted["id"]
    assert "left out of a compaction's payload" in told(cli, memory_id)
    assert "carried over into a compaction" in told(cli, min(kept))


def test_explain_tells_an_invalidation_and_withholds_what_was_said(remembered: Cli) -> None:
    shown = re.findall(r"\[([a-f0-9]{12})\] \(medium\) (.+)", remembered("view").out)
    memory_id, content = shown[0]
    sources = remembered("explain", memory_id, "--json").json()["sourceIds"]
    gone: JsonObject = {"type": "om.sources.invalidated", "ids": sources, "reason": "revoked"}
    line = msgspec.json.encode({"id": "inv", "kind": "custom", "side": True, "data": gone})
    assert remembered("append", SESSION, stdin=line.decode()).code == 0

    text = told(remembered, memory_id)

    assert f"{memory_id} (medium): invalidated" in text
    assert content not in text
    assert "(withheld: it is invalidated)" in text
    assert f"invalidated (revoked: {sources[0]}" in text


def test_explain_tells_why_an_answer_was_never_accepted(remembered: Cli, folder: Path) -> None:
    late = observed("An answer of a run that was overtaken.", "nothing")
    first = next(each for each in records(remembered) if each["kind"] == "message")
    entry = Entry(
        id=f"om:observer:{'0' * 24}",
        session_id=SESSION,
        tenant_id="local",
        parent_id=str(first["id"]),
        kind="custom",
        schema_version=1,
        data=observations(late, covers=str(first["id"]), base=None),
        side=True,
        origin="worker",
    )
    with opened(folder) as engine:
        engine.append([entry])

    text = told(remembered, late["id"])

    assert f"observation {late['id']} (medium): never accepted" in text
    assert "not accepted (stale_base: another run had answered before) by om:observer:0" in text


def test_explain_of_what_no_record_names_is_a_finding(remembered: Cli) -> None:
    done = remembered("explain", "0" * 12)

    assert done.code == 1
    assert "no record of this leaf names it" in done.out


def test_settings_are_shown_with_where_they_were_said(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("OMBUS_DATA", "~/data")
    Path("ombus.toml").write_text("wait-seconds = 3\n[observational-memory]\npassive = true\n")
    monkeypatch.setenv("OMBUS_LOG_LEVEL", "error")

    done = cli("--tenant", "acme", "settings", "--json").json()

    shown = {each["key"]: (each["value"], each["origin"]) for each in done["settings"]}
    project = str(Path("ombus.toml").resolve())
    assert shown["tenant"] == ("acme", "flag")
    assert shown["data"] == (str(folder), "environment OMBUS_DATA")
    assert shown["log-level"] == ("error", "environment OMBUS_LOG_LEVEL")
    assert shown["wait-seconds"] == (3.0, project)
    assert shown["observational-memory.passive"] == (True, project)
    assert shown["observational-memory.observation.messageTokens"] == (10_000, "default")
    assert done["unknown"] == []
    assert "passive" in cli("settings").out


def test_a_memory_key_nobody_knows_is_warned_of_and_a_process_key_is_refused(cli: Cli) -> None:
    file = Path("ombus.toml")
    file.write_text("[observational-memory.observation]\nmessageTokens = 10\nmesageTokens = 5\n")
    done = cli("settings")
    assert done.code == 0
    assert "observational-memory.observation.mesageTokens is no memory setting" in done.err
    assert "mesageTokens" not in done.out

    file.write_text('dta = "x"\n')
    done = cli("settings")
    assert done.code == 2
    assert "dta is no setting" in done.err


def test_a_value_that_is_not_taken_is_shown_with_what_holds_instead(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ombus.toml").write_text("[observational-memory.observation]\nmessageTokens = -1\n")
    monkeypatch.setenv("OMBUS_PASSIVE", "yes")

    done = cli("settings", "--json").json()["settings"]

    shown = {each["key"].partition(".")[2]: (each["value"], each["origin"]) for each in done}
    project = str(Path("ombus.toml").resolve())
    assert shown["observation.messageTokens"] == (10_000, f"default ({project} says -1)")
    assert shown["passive"] == (True, "environment OMBUS_PASSIVE")


def test_trying_settings_shows_what_they_would_have_made_of_a_session(remembered: Cli) -> None:
    before = len(records(remembered))

    found = remembered("settings", "try", "observation.messageTokens=4000", "--json").json()

    assert found["entries"] == 79
    assert found["now"]["observations"] > 10
    assert 0 < found["tried"]["results"] < found["now"]["results"]
    assert 0 < found["turns"] < found["readTokens"]
    assert len(records(remembered)) == before


def test_what_is_tried_stands_on_the_settings_in_force(remembered: Cli) -> None:
    same = remembered("settings", "try", "observation.messageTokens=1000", "--json").json()

    assert same["tried"]["observations"] == same["now"]["observations"]
    assert same["tried"]["reflections"] == same["now"]["reflections"]
    text = remembered("settings", "try", "reflection.observationTokens=9000").out
    assert re.search(r"^cost: \d+ questions to a model over about [\d,]+ tokens$", text, re.M)


def test_a_setting_without_its_group_is_told_which_one_was_meant(remembered: Cli) -> None:
    assert (
        "perhaps observation.messageTokens" in remembered("settings", "try", "messageTokens=9").err
    )
    slip = remembered("settings", "try", "observation.mesageTokens=500").err
    assert "perhaps observation.messageTokens; `ombus settings` lists them" in slip
    copied = "observational-memory.observation.messageTokens=4000"
    assert remembered("settings", "try", copied).code == 0


@pytest.mark.parametrize(
    ("said", "takes"),
    [
        ("observation.messageTokens=abc", "takes a number above 0, and would be 10000"),
        ("observation.messageTokens=-4", "takes a number above 0, and would be 10000"),
        ("context.recentMessages=2.5", "takes a whole number, and would be 8"),
        ("dropper.policy=x", "takes one of lowest-relevance, model, and would be "),
        ("sessionModel=x", "takes a table, and would be null"),
    ],
)
def test_a_value_that_is_not_taken_is_told_what_is(said: str, takes: str) -> None:
    with pytest.raises(BadSetting) as told:
        parsed([said])
    assert f"{said.partition('=')[0]} {takes}" in str(told.value)


def test_settings_that_make_no_sense_are_not_tried(remembered: Cli) -> None:
    for text in ("observation.mesageTokens=4000", "nothing", "observation.messageTokens=-1"):
        done = remembered("settings", "try", text)
        assert done.code == 2, text
        assert text.split("=")[0].split(".")[-1] in done.err


def checks(cli: Cli, *options: object) -> dict[str, JsonObject]:
    return {check["name"]: check for check in cli(*options, "doctor", "--json").json()["checks"]}


def test_a_doctor_with_nothing_to_say_says_so(remembered: Cli) -> None:
    done = remembered("doctor")

    assert done.code == 0
    assert done.out.splitlines()[-1] == "doctor: all is well"
    assert {check["verdict"] for check in checks(remembered).values()} == {"ok"}


def test_a_damaged_file_is_a_finding_with_its_way_out(remembered: Cli, folder: Path) -> None:
    path = folder / "log.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = database.execute("PRAGMA page_size").fetchone()
    damaged = bytearray(path.read_bytes())
    middle = len(damaged) // page // 2 * page
    damaged[middle : middle + page] = b"\xff" * page
    path.write_bytes(damaged)

    done = remembered("doctor")

    assert done.code == 1
    assert re.search(r"^finding +files: .*log\.db: ", done.out, re.M)
    assert "restore a backup" in done.out


def test_a_record_of_the_future_is_a_finding(remembered: Cli, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "log.db")) as database:
        database.execute("UPDATE records SET at_ms = at_ms + 3600000")
        database.commit()

    found = checks(remembered)["clock"]

    assert found["verdict"] == "finding"
    assert "in the future" in str(found["fact"])


def test_a_full_disk_is_a_finding(remembered: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(10**12, 10**12 - 5, 5)
    monkeypatch.setattr("ombus.operator.diagnosis.shutil.disk_usage", lambda _: usage)

    assert checks(remembered)["disk"]["verdict"] == "finding"


def test_a_leaf_parked_for_a_worker_is_a_finding_that_names_why(
    remembered: Cli, folder: Path
) -> None:
    key = session_key("local", SESSION)
    with closing(sqlite3.connect(state_folder(folder) / "state.db")) as database:
        ((partition,),) = database.execute(
            "SELECT partition FROM rows WHERE key = ?", (head_key(key + b"\0"),)
        ).fetchall()
        attempts = Attempts(n_failures=MAX_ATTEMPTS, reason="provider: 401")
        row = b"attempts\0" + key + b"\0" + (1).to_bytes(4, "big") + b"observer"
        database.execute(
            "INSERT INTO operational (partition, key, value) VALUES (?, ?, ?)",
            (partition, row, msgspec.msgpack.encode(attempts)),
        )
        database.commit()

    found = checks(remembered)["workers"]

    assert found["verdict"] == "finding"
    assert f"local/{SESSION}: observer: provider: 401" in str(found["fact"])


def test_an_open_letter_is_a_finding_and_a_record_that_waits_a_note(
    remembered: Cli, folder: Path
) -> None:
    with opened(folder) as engine:
        engine.log.append([Draft(key=session_key("local", SESSION), value=b"{ no JSON")])
    assert checks(remembered)["folding"]["verdict"] == "note"
    assert remembered("doctor").code == 0

    assert remembered("sessions").code == 0
    assert checks(remembered)["dead letters"]["verdict"] == "finding"
    assert remembered("doctor").code == 1


def test_a_backup_is_a_data_folder_with_the_same_memory(remembered: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "copy"

    done = remembered("backup", copy)

    assert done.code == 0
    assert re.search(r"^verify: \d+ rows of 1 sessions equal$", done.out, re.M)
    assert re.search(r"^check: [\d,]+ rows in \d files sound, and complete$", done.out, re.M)
    assert remembered("--data", copy, "view").out == remembered("view").out
    again = remembered("backup", copy)
    assert again.code == 2
    assert "is not empty" in again.err


@pytest.mark.parametrize("name", ["a#b?c%20d", "50%25 ä"])
def test_a_data_folder_may_have_any_name(low: Cli, tmp_path: Path, name: str) -> None:
    folder, copy = tmp_path / name / "data", tmp_path / name / "copy"
    line = '{"role":"user","content":"The ferry leaves at 9:15."}'
    assert low("--data", folder, "append", SESSION, stdin=line).code == 0
    assert low("--data", folder, "token", "create", "ci", "--role", "reader").code == 0
    assert low("--data", folder, "flush").code == 0

    done = low("--data", folder, "backup", copy, "--json")

    assert done.code == 0, done.out
    rows = {each["file"]: each["rows"] for each in done.json()["files"]}
    assert rows.pop("tokens.db") == 1
    assert len(rows) == 3
    assert sum(rows.values()) > 1
    assert [each for each in tmp_path.iterdir() if each.name not in ("work", name)] == []
    left = sorted(each.name for each in copy.rglob("*") if each.is_file())
    assert [each for each in left if each.endswith(("-wal", "-shm"))] == []
    assert low("--data", copy, "view").out == low("--data", folder, "view").out
    for made in (folder, copy):
        assert checks(low, "--data", made)["files"]["verdict"] == "ok"
        assert low("--data", made, "verify").code == 0


def test_no_token_is_valid_in_a_backup_and_its_gateway_asks_for_one(
    remembered: Cli, folder: Path, tmp_path: Path
) -> None:
    token = remembered("token", "create", "ci", "--role", "reader").out.strip()
    copy = tmp_path / "copy"

    assert remembered("backup", copy).code == 0

    with closing(Tokens(copy)) as tokens, closing(Tokens(folder)) as own:
        now = datetime.now(UTC)
        assert tokens.principal(token, now) is None
        assert not tokens.is_empty()
        assert own.principal(token, now) is not None
    assert (copy / "tokens.db").stat().st_mode & 0o077 == 0


def test_a_folder_is_backed_up_while_another_process_appends(
    remembered: Cli, folder: Path, tmp_path: Path
) -> None:
    writing = """
import sys
from ombus.cli.app import app
sys.argv = ["ombus", "append", sys.argv[1]]
app()
"""
    lines = "".join(f'{{"role":"user","content":"line {n}"}}\n' for n in range(2_000))
    with subprocess.Popen(
        [sys.executable, "-c", writing, SESSION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in lines.splitlines(keepends=True)[:20]:
            child.stdin.write(line)
        child.stdin.flush()
        child.stdout.readline()
        done = remembered("backup", tmp_path / "copy", "--json")
        child.stdin.writelines(lines.splitlines(keepends=True)[20:])
        child.stdin.close()
        acknowledged = child.stdout.read().splitlines()

    assert done.code == 0, done.err
    assert done.json()["equal"] is True
    assert len(acknowledged) == 1_999
    assert remembered("verify").code == 0


def test_a_flipped_byte_in_a_backup_is_found(remembered: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert remembered("backup", copy).code == 0
    with closing(sqlite3.connect(state_folder(copy) / "state.db")) as database:
        ((partition, key, value),) = database.execute(
            "SELECT partition, key, value FROM stored ORDER BY length(value) DESC LIMIT 1"
        ).fetchall()
        flipped = value[:-1] + bytes((value[-1] ^ 1,))
        database.execute(
            "UPDATE rows SET value = ? WHERE partition = ? AND key = ?", (flipped, partition, key)
        )
        database.commit()

    done = remembered("--data", copy, "verify")

    assert done.code == 1
    assert done.out.splitlines()[-1] == "verify: 1 differences"


class Payload(msgspec.Struct):
    """The observations of a record or a payload."""

    observations: list[JsonObject]
