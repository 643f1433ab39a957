"""``ombus topics`` as a person or a script types it."""

import json

from ombus.cli.app import app
from typer.testing import CliRunner

from tests.support.brokers import Service


def run(*words: str) -> tuple[int, str]:
    shown = CliRunner().invoke(app, ["topics", *words])
    return shown.exit_code, shown.output


def test_plan_apply_plan_ends_with_nothing_to_do(kafka: Service) -> None:
    servers = ("--bootstrap-servers", kafka.address)
    code, text = run("apply", *servers, "--json")
    assert code == 0, text
    assert {json.loads(line)["topic"] for line in text.splitlines()} == {
        "ombus.session.entries",
        "ombus.scope.grants",
        "ombus.supervision.events",
        "ombus.session.dead-letters",
    }
    code, text = run("plan", *servers)
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == ["keep"] * 4


def test_what_is_refused_ends_with_one_and_changes_nothing(kafka: Service) -> None:
    servers = ("--bootstrap-servers", kafka.address)
    run("apply", *servers)
    code, text = run("apply", *servers, "--production")
    assert code == 1
    assert "refuse" in text
    assert "nothing was changed" in text
    assert run("plan", *servers)[0] == 0


def test_brokers_that_do_not_answer_are_unreachable() -> None:
    code, text = run("plan", "--bootstrap-servers", "127.0.0.1:1")
    assert code == 3
    assert len(text.splitlines()) == 1


def test_rules_are_printed_without_a_broker() -> None:
    code, text = run("acl", "--role", "reader", "--json")
    assert code == 0
    assert {json.loads(line)["operation"] for line in text.splitlines()} == {"Describe", "Read"}
