"""The real transcripts of pi and Claude Code, from the import to the proof."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

MEMORY_ID = re.compile(r"^- \[([a-f0-9]{12})\]", re.M)
MAX_RECALLED = 60
"""Ids of one session that are recalled: all of a small one, evenly spread ones of a big one."""


@pytest.mark.parametrize("tool", ["pi", "claude-code"])
def test_real_transcripts_are_remembered_once_and_proved(
    cli: Cli, transcripts: Path, tool: str
) -> None:
    files = sorted((transcripts / tool).glob("*.jsonl"))
    first = cli("import", *files, "--json")
    assert first.code == 0
    sessions = [str(each["session"]) for each in first.lines()]
    assert len(sessions) >= len(files)

    for session in sessions:
        assert cli("flush", "-s", session).code == 0
        compacted = cli("compact", "-s", session)
        refused = re.search(r"refused: (\w+)", compacted.out)
        # Eight messages are kept whatever happens: a file of ten lines has nothing to fold.
        assert compacted.code == 0 or (refused and refused[1] in ("no_progress", "nothing_folded"))
        ids = MEMORY_ID.findall(cli("view", "-s", session, "--full").out)
        for memory_id in ids[:: max(1, len(ids) // MAX_RECALLED)]:
            assert cli("recall", memory_id, "-s", session, "--json").json()["found"] is True

    assert any(MEMORY_ID.search(cli("view", "-s", session).out) for session in sessions)
    again = cli("import", *files, "--json").lines()
    assert [each["entries"] for each in again] == [0] * len(again)
    assert [each["duplicates"] for each in again] == [each["entries"] for each in first.lines()]
    assert cli("verify").code == 0
    rebuilt = cli("rebuild", "--json").json()
    assert rebuilt["nDiffering"] == 0
