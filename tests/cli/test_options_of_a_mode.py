"""An option that means nothing in a command's mode is refused, never silently ignored."""

import pytest

from tests.cli.conftest import Cli

IGNORED = [
    "verify --role observer",
    "verify --topic other",
    "rebuild --wait 5",
    "rebuild --instance a",
    "rebuild --bootstrap-servers localhost:1",
    "rebuild --remove-old",
    "rebuild --kafka --remove-old --wait 5",
    "rebuild --kafka --remove-old --processes 2",
    "serve --role all",
    "serve --topic other",
    "serve --replicas",
    "serve --advertise http://a:1",
    "serve --beside --wait 5",
    "serve --kafka --wait 5",
    "child a --instance b -- true",
    "child a --bootstrap-servers localhost:1 -- true",
    "child a --token t -- true",
    "child a --url http://localhost:1 --tenant t -- true",
    "mcp -s a --port 1",
    "mcp -s a --token-file f",
    "mcp -s a --url http://localhost:1 --data d",
    "tree a --token-file f",
    "tree a --url http://localhost:1 --data d",
    "replay --to kafka --into d",
    "replay --to file --into f --topic other",
    "replay --to file --into f --source g",
    "replay --to file --into f --source-topic other",
    "replay --to file --into f --bootstrap-servers localhost:1",
    "replay --to file --into f --grants --since 2026-01-31",
    "replay --to file --into f --grants --until 2026-01-31",
    "replay --to file --into f --grants --offsets 0:0-1",
    "worker projector --events other",
    "worker all granter funnel --events other",
    "worker projector observer --grants other",
    "worker supervisor milestones --grants other",
    "archive a --topic other",
    "archive a --check --segment-mb 1",
    "archive a --check --from kafka",
    "restore a --to sqlite --bootstrap-servers localhost:1",
    "restore a --to kafka --into d",
    "shadow a --topic other",
    "export a --leaf e",
    "dlq list --topic other",
    "dlq list --ids --json",
    "dlq list --bootstrap-servers localhost:1 --data d",
    "invalidate --list --hold",
    "invalidate --list --reason deleted",
    "topics acl --json --bootstrap-servers localhost:1",
    "eval evidence f --seeds 2",
    "eval cost f --entries 20",
    "eval ablate f --seeds 2",
]


@pytest.mark.parametrize("line", IGNORED)
def test_it_is_misuse_and_named(cli: Cli, line: str) -> None:
    done = cli(*line.split())

    assert done.code == 2
    (said,) = done.err.splitlines()
    named = said.removeprefix("ombus: ").split()[0]
    assert named.startswith("--")
    assert named in line.split()


def test_what_the_environment_says_is_not_given(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMBUS_CHILD_TOKEN", "for another command")

    done = cli("child", "a", "--kafka", "--", "true")

    assert done.code == 2
    assert "bootstrap" in done.err


def test_what_a_default_says_is_not_given(cli: Cli) -> None:
    assert "[no_data]" in cli("verify").err


@pytest.mark.parametrize(
    "line",
    [
        "worker supervisor --events other",
        "worker projector milestones --events other",
        "worker funnel --grants other",
        "worker all --grants other",
        "worker granter --grants other",
        "replay --to file --into f --grants --session a",
    ],
)
def test_what_means_something_is_not_refused(cli: Cli, line: str) -> None:
    """What these lack is brokers, or a data folder."""
    done = cli(*line.split())

    assert "bootstrap-servers is not set" in done.err or "[no_data]" in done.err
