"""Tools leave their last state, and nothing they merely say."""

import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonValue
from ombus_streams.providers.lines import Line
from ombus_streams.providers.outcomes import Outcomes

from tests.providers.transcripts import answered, called, edited, ran


def lines(*entries: Entry) -> list[Line]:
    outcomes = Outcomes()
    for place, entry in enumerate(entries):
        assert entry.message is not None
        for block in entry.message.content:
            if block["type"] == "tool_call":
                outcomes.called(entry.id, block)
            else:
                outcomes.answered(entry.id, place, block)
    return outcomes.lines()


def contents(*entries: Entry) -> list[str]:
    return [line.content for line in lines(*entries)]


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("=== 12 passed, 1 skipped in 3.10s ===", "12 passed, 1 skipped in 3.10s"),
        ("test result: ok. 8 passed; 0 failed; 0 ignored", "test result: ok. 8 passed; 0 failed"),
        ("Tests:       1 failed, 4 passed, 5 total", "Tests: 1 failed, 4 passed, 5 total"),
        ("Ran 3 tests in 0.1s\n\nOK", "Ran 3 tests in 0.1s OK"),
        ("  5 passing (20ms)", "5 passing"),
    ],
)
def test_test_runners_are_read_for_their_counts(output: str, outcome: str) -> None:
    [line] = lines(*ran(1, "make test", output))

    assert line.content == f"Tests `make test`: {outcome}"
    assert line.relevance == "high"


def test_failing_tests_are_named() -> None:
    output = "FAILED tests/test_a.py::test_x - assert\n1 failed, 2 passed in 1s\nexit code 1"

    assert contents(*ran(1, "pytest", output)) == [
        "Tests `pytest`: 1 failed, 2 passed in 1s; tests/test_a.py::test_x - assert"
    ]


@pytest.mark.parametrize(
    "result",
    [
        "make: *** [all] Error: linker\nCommand exited with code 2",
        {"output": "Error: linker", "exit_code": 2},
        [{"type": "text", "text": "Error: linker\nexit code: 2"}],
        {"content": [{"type": "text", "text": "Error: linker"}], "details": {}, "exitCode": 2},
    ],
)
def test_an_exit_code_is_found_in_every_shape_of_result(result: JsonValue) -> None:
    [line] = lines(*ran(1, "cd /repo && make all 2>&1 | tail -5", result))

    assert line.content.startswith("Failed `make all`: exit 2, ")
    assert "Error: linker" in line.content
    assert line.relevance == "high"


def test_a_traceback_is_read_from_its_end() -> None:
    output = "Traceback (most recent call last):\n  ImportError: first\nValueError: bad value"

    [line] = contents(*ran(1, "python app.py", output + "\nexit code 1"))

    assert line == "Failed `python app.py`: exit 1, ValueError: bad value"


def test_what_failed_and_then_worked_has_worked() -> None:
    entries = [*ran(1, "make", "exit code 2"), *ran(2, "make", "exit code 2"), *ran(3, "make", "")]

    [line] = lines(*entries)

    assert line.content == "Ran `make`: ok (after 2 failed)"
    assert line.relevance == "medium"
    assert line.source_ids[:2] == ("c3", "r3")


def test_looking_around_is_no_outcome() -> None:
    assert contents(*ran(1, "grep -n foo src", ""), *ran(2, "git status", "On branch main")) == []
    assert contents(*ran(1, "grep foo", "", error="exit code 1")) == []


def test_edits_of_one_file_are_one_line_with_what_they_define() -> None:
    entries = [
        *edited(1, "src/a.py", "def load(): ..."),
        *edited(2, "src/a.py", "class Store: ..."),
        *edited(3, "src/b.py"),
    ]

    assert contents(*entries) == ["Changed src/a.py (2 times): load, Store", "Changed src/b.py"]


def test_a_failed_edit_is_settled_by_the_one_that_works() -> None:
    failed = edited(1, "a.py", error="Could not find the exact text")

    assert contents(*failed) == ["Failed `edit a.py`: Could not find the exact text"]
    assert contents(*failed, *edited(2, "a.py")) == ["Changed a.py"]


def test_one_tool_for_a_files_whole_life_is_read_by_its_command() -> None:
    name = "str_replace_based_edit_tool"
    entries = [
        called("c1", "t1", name, command="view", path="/a.py"),
        answered("r1", "t1", name, "text"),
        called("c2", "t2", name, command="create", path="/b.py", file_text="x"),
        answered("r2", "t2", name, "ok"),
    ]

    assert contents(*entries) == ["Created /b.py", "Read /a.py"]


def test_a_patch_names_its_files() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.rs\n+x\n*** Add File: src/b.rs\n*** End Patch"
    entries = [
        called("c1", "t1", "apply_patch", input=patch),
        answered("r1", "t1", "apply_patch", "Done!"),
    ]

    assert contents(*entries) == ["Changed src/a.rs", "Changed src/b.rs"]


def test_files_that_were_read_share_a_line_unless_they_were_changed() -> None:
    entries: list[Entry] = []
    for n, path in enumerate(("a.py", "b.py", "a.py", "c.py")):
        entries += [
            called(f"c{n}", f"t{n}", "Read", file_path=path),
            answered(f"r{n}", f"t{n}", "Read", "..."),
        ]

    assert contents(*entries, *edited(9, "b.py")) == ["Changed b.py", "Read a.py, c.py"]


def test_a_result_whose_call_is_in_an_earlier_span_counts_only_if_it_failed() -> None:
    assert contents(answered("r1", "gone", "bash", "all good")) == []
    assert contents(answered("r1", "gone", "edit", error="File not found: x")) == [
        "Failed `edit`: File not found: x"
    ]


def test_what_our_own_recall_tool_answers_is_no_news() -> None:
    entries = [
        called("c1", "t1", "recall", id="0123456789ab"),
        answered("r1", "t1", "recall", "Observation [0123456789ab]: always use tabs"),
    ]

    assert contents(*entries) == []


def test_colours_of_a_terminal_are_left_out() -> None:
    output = "\x1b[31;1mError: \x1b[0mlinker failed\nexit code 2"

    assert contents(*ran(1, "make", output)) == ["Failed `make`: exit 2, Error: linker failed"]


def test_a_search_is_named_by_what_it_looked_for() -> None:
    entries = [
        called("c1", "t1", "Grep", path="/project", pattern="def fold"),
        answered("r1", "t1", "Grep", "a.py:1"),
    ]

    assert contents(*entries) == ["Ran `Grep`: def fold"]
