"""``flush`` and ``compact``: counts, refusals, and what is folded away."""

from pathlib import Path

from tests.cli.conftest import SAMPLE, Cli


def test_a_flush_covers_everything_and_says_what_was_recorded(low: Cli) -> None:
    low("import", SAMPLE)

    done = low("flush", "--json").json()

    assert done["failure"] is None
    assert done["observations"] > 0
    assert low("status", "--json").json()["pending"] == {
        "sources": 0,
        "tokens": 0,
        "threshold": 1_000,
    }


def test_a_flush_with_nothing_new_records_nothing(remembered: Cli) -> None:
    done = remembered("flush", "--json").json()

    assert (done["observations"], done["reflections"], done["dropped"]) == (0, 0, 0)


def test_a_compaction_says_what_it_stands_for(remembered: Cli) -> None:
    done = remembered("compact", "--json").json()["compaction"]

    assert done["failure"] is None
    assert done["observations"] == remembered("status", "--json").json()["observations"]["active"]
    assert done["trimmed"] == 0
    text = remembered("tail", "-n", 1_000, "--json").out
    assert text.count('"kind":"compaction"') == 1


def test_a_second_compaction_is_refused_with_its_reason(remembered: Cli) -> None:
    remembered("compact")

    done = remembered("compact")

    assert done.code == 1
    assert "compaction refused: no_progress" in done.out
    assert remembered("verify").code == 0


def test_without_memory_a_compaction_is_refused(cli: Cli) -> None:
    lines = "".join(f'{{"role":"user","content":"ok","id":"m{at}"}}\n' for at in range(20))
    cli("append", "s1", stdin=lines)

    done = cli("compact")

    assert done.code == 1
    assert "nothing_folded" in done.out


def test_a_passive_session_refuses_both(cli: Cli) -> None:
    Path("ombus.toml").write_text("[observational-memory]\npassive = true\n")
    cli("import", SAMPLE)

    assert cli("flush").code == 1
    done = cli("compact", "--json")

    assert done.code == 1
    assert done.json()["flush"]["failure"] == "passive"


def test_a_leaf_may_be_named(cli: Cli) -> None:
    cli("append", "s1", stdin='{"role":"user","content":"Never push to main.","id":"a"}')

    done = cli("flush", "--leaf", "a", "--json").json()

    assert done["leaf"] == "a"
    assert cli("flush", "--leaf", "zz").code == 2
