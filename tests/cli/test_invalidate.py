"""`ombus invalidate`: nothing shows what was taken out, on any branch, whatever asks."""

from pathlib import Path

from tests.cli.conftest import Cli

WORD = "marmalade"
READS = (
    ("context",),
    ("view", "--full"),
    ("status",),
    ("tail", "-n", "100"),
    ("tail", "-n", "100", "--json"),
    ("page", "m0"),
    ("scope", "show", "--json"),
)


def lines(*texts: str) -> str:
    return "\n".join(
        f'{{"id": "m{n}", "role": "user", "content": "{text}"}}' for n, text in enumerate(texts)
    )


def talked(cli: Cli) -> str:
    """Return the id of a memory that rests on the first message."""
    said = lines(
        f"We decided: {WORD} must be on the 7:15 ferry.", *(f"Pier {n}." for n in range(9))
    )
    assert cli("append", "s", stdin=said).code == 0
    fork = '{"id": "fork", "parentId": "m3", "role": "user", "content": "Or the 8:15 ferry."}'
    assert cli("compact").code == 0
    assert cli("append", "s", stdin=fork).code == 0
    view = cli("view", "--leaf", "m9").out
    line = next(line for line in view.splitlines() if WORD in line and "[" in line)
    return line.split("[")[1].split("]")[0]


def test_nothing_shows_what_was_invalidated_on_any_branch(low: Cli) -> None:
    memory = talked(low)
    assert WORD in low("tail", "-n", "100").out
    before = low("context", "--json").json()["position"]
    done = low("invalidate", "m0", "--reason", "revoked", "--hold", "--json").json()
    assert done["hidden"] == 1
    for read in READS:
        for leaf in ("m9", "fork"):
            more = () if read[0] == "tail" else ("--leaf", leaf)
            answer = low(*read, *more)
            assert WORD not in answer.out, (read, leaf)
    assert WORD not in low("context", "--as-of", before).out
    assert WORD not in low("view", "--full", "--as-of", before, "--leaf", "m9").out
    assert WORD not in low("recall", memory, "--leaf", "m9").out
    assert low("compact", "--leaf", "m9").code in (0, 1)
    assert WORD not in low("tail", "-n", "200", "--json").out
    assert low("verify").code == 0


def test_an_invalidation_leaves_a_record_for_audit_once_a_branch(low: Cli) -> None:
    memory = talked(low)
    low("invalidate", "m0")
    low("invalidate", "m0")
    tail = [each["gist"] for each in low("tail", "-n", "200", "--json").lines()]
    drops = [gist for gist in tail if gist.startswith("dropped:")]
    assert len(drops) == 1
    listed = low("invalidate", "--list").out.splitlines()
    assert len(listed) == 2
    assert all("revoked: m0" in line for line in listed)
    assert low("invalidate", memory, "--reason", "corrected").code == 0


def test_what_was_corrected_is_recalled_and_not_shown(low: Cli) -> None:
    memory = talked(low)
    assert low("invalidate", "m0", "--reason", "corrected").code == 0
    assert WORD not in low("context", "--leaf", "m9").out
    assert WORD in low("recall", memory, "--leaf", "m9").out


def test_an_id_that_names_nothing_is_a_finding(low: Cli) -> None:
    talked(low)
    done = low("invalidate", "nobody")
    assert (done.code, done.err) == (1, "names nothing so far: nobody\n")
    assert low("invalidate").code == 2
    assert low("invalidate", "m0", "--reason", "whatever").code == 2


def test_it_follows_into_the_workspace(low: Cli) -> None:
    funnel = '\n[observational-memory.funnel]\nworkspace = "team"\n'
    Path("ombus.toml").write_text(Path("ombus.toml").read_text() + funnel)
    low("append", "s", stdin=lines(f"We decided: {WORD} is on the ferry."))
    low("flush", "--session", "s")
    low("flush", "--session", "team")
    assert WORD in low("context", "--session", "team").out
    done = low("invalidate", "m0", "--session", "s", "--json").json()
    assert done["followedIn"] == ["team"]
    for read in (("context",), ("view", "--full"), ("tail", "-n", "50")):
        assert WORD not in low(*read, "--session", "team").out, read
    assert low("verify").code == 0
