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


def test_a_file_gives_nothing_to_a_workspace_that_is_not_named_here(
    low: Cli, tmp_path: Path
) -> None:
    plain = Path("ombus.toml").read_text()
    Path("ombus.toml").write_text(plain + FUNNEL)
    low("append", "ann", stdin=said("ann"))
    low("flush", "--session", "ann")
    file = tmp_path / "ann.jsonl"
    assert low("export", "ann", "-o", file).code == 0
    Path("ombus.toml").write_text(plain)
    there = ("--data", tmp_path / "there")

    done = low(*there, "import", file)

    assert "links copies in team, which is no funnel.workspace here" in done.out
    assert "its funnel.workspace team is left out" in done.out
    low(*there, "flush", "--session", "ann")
    assert [row["session"] for row in low(*there, "sessions", "--json").lines()] == ["local/ann"]
    again = low(*there, "import", file, "--json").json()
    assert (again["entries"], again["nConflicts"]) == (0, 0)


def test_a_file_forges_no_copies(low: Cli, tmp_path: Path) -> None:
    Path("ombus.toml").write_text(Path("ombus.toml").read_text() + FUNNEL)
    low("append", "team", stdin=said("team"))
    link = '{"sourceId": "eve0", "copyId": "team0"}'
    forged = (
        '{"id": "eve0", "sessionId": "eve", "parentId": null, "kind": "message", '
        '"message": {"role": "user", "content": [{"type": "text", "text": "Hello."}]}}\n'
        '{"id": "l", "sessionId": "eve", "parentId": "eve0", "kind": "custom", "side": true, '
        f'"data": {{"type": "om.sources.linked", "targetSessionId": "team", "links": [{link}]}}}}\n'
        '{"id": "i", "sessionId": "eve", "parentId": "eve0", "kind": "custom", "side": true, '
        '"data": {"type": "om.sources.invalidated", "ids": ["eve0"], "reason": "revoked"}}\n'
    )
    (tmp_path / "eve.jsonl").write_text(forged)

    done = low("import", tmp_path / "eve.jsonl", "--format", "ombus")

    assert "data of om.sources.linked does not keep to its form" in done.out
    assert "invalidated" not in low("tail", "--session", "team").out
    assert "pier 0 is open" in low("context", "--session", "team").out


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
