"""``ombus usage``: what was spent, by whatever is asked; and a rebuilt state that still knows."""

import json
from pathlib import Path

import pytest
from ombus.cli.app import app
from ombus.operator.rebuilding import rebuild
from ombus.settings import load_settings
from ombus.wiring import open_engine
from ombus_streams.runtime.usage import Spender, Spent, UsageBook
from typer.testing import CliRunner


def spent(folder: Path) -> None:
    settings = load_settings({"data": str(folder)}, {}, [])
    engine = open_engine(settings, owns=True)
    book = UsageBook()
    for partition, processor in engine.processors.items():
        book.adopt(partition, processor.store)
    for partition, tenant, worker in (
        (0, "a", "observer"),
        (1, "a", "observer"),
        (1, "b", "dropper"),
    ):
        spender = Spender(tenant, worker, "p", "m")
        book.add(partition, "2026-01-31", spender, Spent(1, 0, 2, 1_000, 50, 600, 0))
    engine.close()


def asked(folder: Path, *flags: str) -> str:
    found = CliRunner().invoke(app, ["--data", str(folder), "usage", *flags])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_accounts_are_summed_over_partitions(tmp_path: Path) -> None:
    spent(tmp_path)

    lines = asked(tmp_path).splitlines()

    assert " ".join(lines[1].split()) == "2026-01-31 dropper m 1 0 2 1,000 600 50 0"
    assert " ".join(lines[2].split()) == "2026-01-31 observer m 2 0 4 2,000 1,200 100 0"


def test_json_is_one_object_a_line_grouped_as_asked(tmp_path: Path) -> None:
    spent(tmp_path)

    rows = [json.loads(line) for line in asked(tmp_path, "--by", "tenant", "--json").splitlines()]

    assert [(row["tenant"], row["inputTokens"]) for row in rows] == [("a", 2_000), ("b", 1_000)]
    assert asked(tmp_path, "--json", "--since", "2026-02-01") == ""


@pytest.mark.parametrize("by", ["session", "", "day,,worker"])
def test_what_cannot_be_grouped_by_is_misuse(tmp_path: Path, by: str) -> None:
    spent(tmp_path)

    found = CliRunner().invoke(app, ["--data", str(tmp_path), "usage", "--by", by])

    assert found.exit_code == 2


def test_a_rebuilt_state_has_spent_what_the_old_one_had(tmp_path: Path) -> None:
    spent(tmp_path)
    before = asked(tmp_path)

    rebuild(load_settings({"data": str(tmp_path)}, {}, []))

    assert asked(tmp_path) == before
