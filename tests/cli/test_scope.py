"""`ombus scope`: what it says, and what it refuses."""

from tests.cli.conftest import Cli


def test_a_scope_is_opened_entered_left_and_closed(remembered: Cli) -> None:
    assert remembered("scope", "open", "plan", "--label", "The plan").code == 0
    assert remembered("scope", "open", "plan/a", "--parent", "plan").code == 0
    entered = remembered("scope", "enter", "plan/a", "--json").json()
    assert entered["current"] == "plan/a"
    listed = remembered("scope", "list").out.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [
        ["+", "session"],
        ["+", "plan"],
        ["*", "plan/a"],
    ]
    assert remembered("scope", "leave", "--json").json()["current"] == "plan"
    assert remembered("scope", "close", "plan").out == ("closed plan; the work stands in session\n")
    assert remembered("scope", "leave").out == ("nothing new to say; the work stands in session\n")


def test_what_the_scopes_do_not_allow_is_one_line_and_a_code(remembered: Cli) -> None:
    done = remembered("scope", "enter", "plan")
    assert done.code == 2
    assert "session local/" in done.err
    assert "scope 'plan' was never opened on this branch; `ombus scope list` shows" in done.err
    done = remembered("scope", "open", "no good")
    assert (done.code, done.out) == (2, "")
    assert "is no scope id" in done.err
    assert "[bad_scope]" in done.err
    remembered("scope", "open", "plan")
    done = remembered("scope", "open", "plan")
    assert done.code == 2
    assert "was opened before" in done.err


def test_bound_memory_is_what_is_shown_and_unbound_memory_is_recalled(remembered: Cli) -> None:
    done = remembered("scope", "open", "plan")
    assert "memories are bound to no scope, so no context shows them" in done.err
    all_of_it = remembered("scope", "show", "--json", "--include", "lineage").json()
    assert all_of_it.get("observations", []) == []
    view = remembered("view").out
    memory = view.split("## Observations")[1].split("[")[1].split("]")[0]
    assert remembered("scope", "bind", "plan", f"om:{memory}").code == 0
    remembered("scope", "enter", "plan")
    shown = remembered("scope", "show", "--json").json()
    assert [item["id"] for item in shown["observations"]] == [memory]
    context = remembered("context").out
    assert "plan" in context
    assert memory in context
    remembered("scope", "unbind", "plan", f"om:{memory}")
    assert memory not in remembered("context").out
    assert remembered("recall", memory).code == 0
