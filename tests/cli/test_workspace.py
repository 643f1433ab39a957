"""A workspace and the sessions that give to it move together, and nothing is given twice."""

from pathlib import Path

from tests.cli.conftest import Cli

FUNNEL = '\n[observational-memory.funnel]\nworkspace = "team"\n'


def said(session: str) -> str:
    return "\n".join(
        f'{{"id": "{session}{n}", "role": "user", "content": "We decided: pier {n} is open."}}'
        for n in range(3)
    )


def test_an_export_of_a_workspace_comes_home_as_it_was(low: Cli, tmp_path: Path) -> None:
    Path("ombus.toml").write_text(Path("ombus.toml").read_text() + FUNNEL)
    for session in ("ann", "bob"):
        low("append", session, stdin=said(session))
        assert low("flush", "--session", session).code == 0
    low("flush", "--session", "team")
    low("invalidate", "ann0", "--session", "ann")
    here = {name: low("context", "--session", name).out for name in ("team", "ann", "bob")}
    assert "pier 1 is open" in here["team"]
    files = [tmp_path / f"{name}.jsonl" for name in here]
    for name, file in zip(here, files, strict=True):
        assert low("export", name, "-o", file).code == 0
    there = ("--data", tmp_path / "there")
    done = low(*there, "import", *files)
    assert done.code == 0
    assert "skipped line" not in done.out
    for name, context in here.items():
        assert low(*there, "context", "--session", name).out == context
    assert low(*there, "verify").code == 0
    assert links(low, *there) == links(low) == 2
    rows = zip(
        low("sessions", "--json").lines(), low(*there, "sessions", "--json").lines(), strict=True
    )
    for here_row, there_row in rows:
        assert there_row["branches"] == here_row["branches"] == 1
        # Whoever imports writes the settings that hold there.
        assert there_row["entries"] <= here_row["entries"] + 1


def test_a_session_of_somebody_gives_nothing_to_one_that_is_nobodys(low: Cli) -> None:
    low("append", "ann", stdin=said("ann"))
    low("flush", "--session", "ann")
    low("scope", "open", "plan", "--session", "ann")
    assert low("scope", "grant", "plan", "local/bob", "--session", "ann").code == 0
    Path("ombus.toml").write_text(Path("ombus.toml").read_text() + FUNNEL)
    low("append", "ann", stdin='{"id": "more", "role": "user", "content": "More."}')
    low("flush", "--session", "ann")
    assert links(low) == 0
    assert "Parked: funnel: other_owner" in low("status", "--session", "ann").out
    low("append", "bob", stdin=said("bob"))
    low("flush", "--session", "bob")
    assert links(low) == 1


def links(cli: Cli, *where: object) -> int:
    return cli(*where, "tail", "-n", "200").out.count(" om.sources.linked:")
