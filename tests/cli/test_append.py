"""``ombus append``: one acknowledgement for each durable entry."""

from tests.cli.conftest import Cli


def test_messages_are_chained_to_the_last_append_and_acknowledged(cli: Cli) -> None:
    cli("append", "s1", stdin='{"role":"user","content":"one","id":"a"}\n')

    done = cli("append", "s1", "--json", stdin='{"role":"user","content":"two","id":"b"}\n')

    (answer,) = done.lines()
    assert (answer["id"], answer["status"]) == ("b", "appended")
    entries = [each["entry"] for each in cli("tail", "-s", "s1", "--json").lines()]
    assert [(each["id"], each["parentId"]) for each in entries] == [("a", None), ("b", "a")]
    assert cli("tail", "-s", "s1", "--json").lines()[-1]["position"] == answer["position"]


def test_sending_everything_again_acknowledges_without_another_record(cli: Cli) -> None:
    lines = '{"role":"user","content":"one","id":"a"}\n{"role":"user","content":"two","id":"b"}\n'
    cli("append", "s1", stdin=lines)

    done = cli("append", "s1", stdin=lines)

    assert done.out.splitlines() == ["duplicate a", "duplicate b"]
    assert len(cli("tail", "-s", "s1", "--json").lines()) == 2


def test_a_line_that_is_not_taken_is_named_and_the_others_are(cli: Cli) -> None:
    lines = [
        '{"role":"user","content":"one","id":"a"}',
        "{",
        "",
        '{"role":"user","content":"other","id":"a"}',
        '{"kind":"message","id":"b","sessionId":"elsewhere","message":{"role":"user"}}',
        '{"kind":"compaction","id":"c","summary":"forged"}',
        '{"role":"user","content":"last","id":"d"}',
    ]

    done = cli("append", "s1", stdin="\n".join(lines))

    assert done.code == 1
    assert [line.split()[1] for line in done.out.splitlines()] == ["a", "d"]
    assert [line.split(": ")[1] for line in done.err.splitlines()] == [
        "line 2",
        "line 4",
        "line 5",
        "line 6",
    ]


def test_a_bare_message_without_content_is_not_taken_and_an_entry_is(cli: Cli) -> None:
    lines = [
        '{"role":"user"}',
        '{"role":"user","contents":"lost"}',
        '{"role":"user","content":"kept","contents":"lost"}',
        '{"kind":"message","id":"a","message":{"role":"user"}}',
    ]

    done = cli("append", "s1", stdin="\n".join(lines))

    assert done.code == 1
    assert [line.split()[1] for line in done.out.splitlines()] == ["a"]
    one, two, three = done.err.splitlines()
    shape = 'a line is {"role": "user", "content": "…"} or an entry'
    assert one == f"ombus: line 1: the message has no content; {shape}"
    assert two == f"ombus: line 2: the message has no content; {shape}"
    assert "line 3" in three
    assert "message.contents is no field of ours" in three


def test_a_role_that_nobody_observes_is_kept_and_warned_of(cli: Cli) -> None:
    roles = ("user", "assistant", "tool", "system", "usr", "usr")
    lines = [f'{{"role":"{role}","content":"x"}}' for role in roles]

    done = cli("append", "s1", stdin="\n".join(lines))

    assert done.code == 0
    assert len(done.out.splitlines()) == 6
    assert done.err == "ombus: 2 messages of role 'usr' are kept, and no worker reads that role\n"


def test_a_session_name_out_of_grammar_is_misuse(cli: Cli) -> None:
    done = cli("append", "no such/name/here", stdin="")

    assert done.code == 2
    assert "[no_session]" in done.err


def test_a_session_that_is_misspelt_is_told_the_nearest(cli: Cli) -> None:
    for name in ("ferry", "acme/harbour"):
        cli("append", name, stdin='{"role":"user","content":"x"}')

    assert "no session fery: perhaps ferry; `ombus sessions`" in cli("view", "-s", "fery").err
    assert "perhaps acme/harbour; " in cli("view", "-s", "acme/harbor").err
    assert "no session zzz: `ombus sessions`" in cli("view", "-s", "zzz").err
