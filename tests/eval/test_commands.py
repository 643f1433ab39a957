"""The commands of ``ombus eval`` print one object, or a table that says what it was measured on."""

import json
from pathlib import Path

import msgspec
from ombus.cli.app import app
from ombus.eval.ablation import of_talk
from typer.testing import CliRunner

from tests.eval.talks import asked, talk

RUNNER = CliRunner()


def ran(*words: str) -> str:
    result = RUNNER.invoke(app, ["eval", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_file_is_measured_and_printed_as_one_object(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    ran("invent", str(file), "--seeds", "1")

    found = msgspec.json.decode(ran("evidence", str(file), "--budget", "0.3", "--json"))

    assert {"held", "window", "ratio", "questions", "left_out", "readable", "by_category"} <= set(
        found
    )
    assert found["by_category"]["4"]["questions"] > 0
    assert found["source"] == "talks.json"


def test_a_table_names_seeds_and_versions_and_a_plot_is_drawn(tmp_path: Path) -> None:
    plot = tmp_path / "bars.svg"

    text = ran("evidence", "--seeds", "1", "--plot", str(plot))

    assert "seeds 1 to 1" in text
    assert "provider extractive/" in text
    assert plot.read_text().startswith("<svg")


def test_reuse_and_cost_print_a_line_for_each_transcript(tmp_path: Path) -> None:
    file = tmp_path / "work.json"
    rows = [
        {"role": ("user", "assistant")[n % 2], "content": f"see src/a_{n % 5}.py, now"}
        for n in range(30)
    ]
    file.write_text(json.dumps({"messages": rows}))

    [one] = msgspec.json.decode(ran("reuse", str(file), "--json"))["transcripts"]
    assert one["transcript"] == "work.json"
    assert "work.json" in ran("reuse", str(file), "--plot", str(tmp_path / "r.svg"))
    assert "work.json" in ran("cost", str(file), "--plot", str(tmp_path / "c.svg"))
    assert "3,0" not in ran("cost", "--entries", "60")


def test_each_rule_is_switched_off_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "work.json"
    rows = [{"role": "user", "content": f"see src/a_{n % 5}.py, now"} for n in range(20)]
    file.write_text(json.dumps({"messages": rows}))

    rules = msgspec.json.decode(ran("ablate", str(file), "--json"))["rules"]
    assert rules[0]["without"] == "nothing"
    assert len(rules) >= 5
    assert "EARNS" in ran("ablate", str(file))

    talks = of_talk([talk(asked("Ghent", "D1:2"))], 0.3)
    assert len({one.without for one in talks}) == len(talks) >= 10


def test_a_file_of_another_shape_is_misuse(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    file.write_text("{}")

    result = RUNNER.invoke(app, ["eval", "evidence", str(file)])

    assert result.exit_code == 2
