"""Identifiers that are named again: what they are, where a session is cut, what is still held."""

import json
from pathlib import Path

import pytest
from ombus.eval.cost import measured as costed
from ombus.eval.identifiers import EXPRESSIONS, identifiers_of
from ombus.eval.reuse import compaction_points, cut_tail, entries_of, measured

from tests.support.ledgers import message

FILES = [f"src/module_{n}/loader_{n}.py" for n in range(40)]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """An agent that reads forty files, and comes back to the first ones at the end."""
    rows: list[dict[str, object]] = [{"role": "user", "content": "Port every loader to asyncio."}]
    for n, file in enumerate([*FILES, *FILES[:10]]):
        body = f"def load_{n}(path): ...\n" + "lorem ipsum dolor sit amet " * 30
        rows += [
            {"role": "assistant", "content": f"Reading {file} for loadConfig{n}Now."},
            {"role": "user", "content": f"{file} says:\n{body}"},
        ]
    file_path = tmp_path / "work.json"
    file_path.write_text(json.dumps({"messages": rows}))
    return file_path


def test_six_expressions_find_what_must_be_named_exactly() -> None:
    text = (
        "src/app/theme.py has loadTheme and max_tokens, 250 ms, https://example.org/a?b=c, "
        "4f1c2aa9 and ValueError: theme is missing"
    )

    assert identifiers_of(text) == {
        "src/app/theme.py": "path",
        "loadTheme": "symbol",
        "max_tokens": "symbol",
        "250 ms": "number",
        "https://example.org/a?b=c": "url",
        "4f1c2aa9": "hash",
        "ValueError": "symbol",
        "ValueError: theme is missing": "error",
    }
    assert len(EXPRESSIONS) == 6


def test_prose_has_no_identifiers() -> None:
    assert identifiers_of("He said that the decade was over. And so it was, in 1999.") == {}


def test_a_session_is_cut_whenever_it_has_grown_by_so_much() -> None:
    entries = [message(f"e{n}", "x" * 400) for n in range(40)]

    assert compaction_points(entries, 1_200) == [12, 24, 36]
    assert compaction_points(entries, 10**9) == [20]
    assert compaction_points(entries[:4], 10**9) == []


def test_the_end_of_a_text_is_what_fits() -> None:
    assert cut_tail("abcdefghij", 2) == "cdefghij"
    assert cut_tail("abc", 2) == "abc"
    assert cut_tail("abc", 0) == ""


def test_what_is_named_again_is_held_better_than_by_default_or_by_a_window(
    transcript: Path,
) -> None:
    found = measured(transcript, 0.15, every=9_000)

    assert found.points == 1
    assert found.identifiers >= 10
    assert found.memory > max(found.default, found.window)
    assert found.ratio <= 0.15


def test_what_it_costs_is_counted(transcript: Path) -> None:
    entries = entries_of(transcript)

    found = costed("work", entries)

    assert found.entries == len(entries)
    assert found.saved == found.tokens - found.context > 0
    assert found.log_bytes > found.worker_bytes > 0
    assert found.runs >= 2
    assert found.written <= 0.5 * found.tokens


@pytest.mark.parametrize(
    "name", ["pi/pi-v1-large-session.jsonl", "pi/pi-v3-badline-custom-entries.jsonl"]
)
def test_real_sessions_are_held_better_than_by_default_or_by_a_window(
    shared: Path, name: str
) -> None:
    found = measured(shared / name, every=60_000)

    assert found.memory > max(found.default, found.window)
    assert found.ratio <= found.budget
