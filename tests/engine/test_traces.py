"""``debugLog``: a session's runs as NDJSON, concealed, bounded, and only if it was asked for."""

from pathlib import Path

import msgspec
import pytest
from ombus_streams.engine.traces import TraceFiles
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.roster import Fixed
from ombus_streams.runtime.staff import Staff

from tests.support.engine import Driver, ManualClock, diligent, worker
from tests.support.sessions import chat, fact

SECRET = "hunter2-hunter2"


def told(folder: Path, *, debug_log: bool) -> TraceFiles:
    provider = worker(diligent)
    driver = Driver(provider, secrets=(SECRET,))
    traces = TraceFiles(folder, driver.clock, (SECRET,))
    roster = Fixed({"observer": provider, "reflector": provider, "dropper": provider})
    driver.interpreter = Interpreter(Staff(roster, trace=traces), driver.clock, secrets=(SECRET,))
    said = {"observation": {"messageTokens": 5}, "debugLog": debug_log}
    driver.tell(
        fact("s", None, "settings.changed", settings=said),  # type: ignore[arg-type]  # JSON
        chat("m0", None, f"the password is {SECRET}"),
    )
    return traces


def test_a_session_that_asks_for_it_leaves_every_request_and_answer(tmp_path: Path) -> None:
    traces = told(tmp_path, debug_log=True)

    text = traces.path("t", "s").read_text()
    events = [msgspec.json.decode(line) for line in text.splitlines()]
    assert [event["event"] for event in events] == ["turn.asked", "turn.answered", "turn.asked"]
    assert {event["worker"] for event in events} == {"observer"}
    assert len(events[0]["messages"]) == 2
    assert len(events[2]["messages"]) == 2  # what was told before is not told again
    assert SECRET not in text


def test_a_session_that_does_not_leaves_nothing(tmp_path: Path) -> None:
    told(tmp_path, debug_log=False)

    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_rotated_and_bounded(tmp_path: Path) -> None:
    traces = TraceFiles(tmp_path, ManualClock(), max_bytes=300, max_files=3)
    for number in range(50):
        traces.write("t", "s", {"event": "x", "number": number})

    files = sorted(tmp_path.rglob("*.ndjson*"))
    assert [file.name for file in files] == [f"session-s.ndjson{end}" for end in ("", ".1", ".2")]
    assert all(file.stat().st_size <= 300 for file in files)
    assert b'"number":49' in files[0].read_bytes()


@pytest.mark.parametrize("name", ["..", ".", "a:b", "con"])
def test_no_id_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    traces = TraceFiles(tmp_path, ManualClock())
    traces.write(name, name, {"event": "x"})

    (file,) = tmp_path.rglob("*.ndjson")
    assert file.parent.parent == tmp_path


def test_a_trace_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    TraceFiles(tmp_path / "file", ManualClock()).write("t", "s", {"event": "x"})
