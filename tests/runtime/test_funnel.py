"""The funnel: copies in a workspace, once and in order, and what becomes of them (section 10)."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from ombus_schemas.codec import decode_record
from ombus_schemas.copies import copied_from, copy_id
from ombus_schemas.entries import Entry, Origin
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.memory import reading
from ombus_streams.memory.funnel import decide
from ombus_streams.memory.session import view
from ombus_streams.runtime.errors import Deferred
from ombus_streams.runtime.owners import Owners

from tests.engine.faults import dies, fused, killed
from tests.support.engine import ManualClock, worker
from tests.support.sessions import chat, custom, fact

TEAM = session_key("t", "team")
MAX_STATEMENTS = 400
STEP = 1 if "OMBUS_THOROUGH" in os.environ else 9
"""Statements between two places at which the process is killed."""


def engine_in(folder: Path) -> Engine:
    provider = worker()
    return Engine(
        folder,
        ManualClock(),
        {"observer": provider, "reflector": provider, "dropper": provider},
        partitions=2,
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = engine_in(tmp_path)
    yield opened
    opened.close()


def of(session: str, *entries: Entry) -> list[Entry]:
    return [msgspec.structs.replace(entry, session_id=session) for entry in entries]


def opted_in(session: str, workspace: str = "team") -> list[Entry]:
    """Return the first entries of a session that gives to a workspace."""
    said: JsonObject = {"funnel": {"workspace": workspace}}
    return of(session, fact(f"{session}-set", None, "settings.changed", settings=said))


def talk(session: str, n: int, first: int = 0, origin: Origin | None = None) -> list[Entry]:
    return of(
        session,
        *(
            chat(f"{session}-{i}", f"{session}-{i - 1}" if i else None, tokens=20, origin=origin)
            for i in range(first, first + n)
        ),
    )


def log_of(engine: Engine, session: str) -> list[Entry]:
    records = engine.log.of_key(session_key("t", session))
    return [decode_record(record.key, record.value) for record in records]


def given(engine: Engine) -> list[tuple[str, str]]:
    """Return where the messages of the workspace's default leaf come from, in its order."""
    found: list[tuple[str, str]] = []
    with engine.reading(TEAM) as live:
        leaf = live.session.leaf(live.session.head.default_segment)
        for entry in reading.entries_on(live.session, leaf, ids_of(engine)):
            source = copied_from(entry)
            if source is not None:
                found.append((source.session_id, source.entry_id))
    return found


def ids_of(engine: Engine) -> list[str]:
    with engine.reading(TEAM) as live:
        leaf = live.session.leaf(live.session.head.default_segment)
        rows = [row.value for _, row in view(live.session, leaf.lineage)]
    return [str(msgspec.json.decode(value)["id"]) for value in rows]


def names(session: str, *numbers: int) -> list[tuple[str, str]]:
    return [(session, f"{session}-{n}") for n in numbers]


def test_messages_of_several_children_make_one_conversation_in_the_workspace(
    engine: Engine,
) -> None:
    engine.append([*opted_in("a"), *opted_in("b"), *talk("a", 3)])
    engine.settle()
    engine.append(talk("b", 2))
    engine.settle()
    engine.append(talk("a", 2, first=3))
    engine.settle()
    assert given(engine) == [
        *names("a", 0, 1, 2),
        *names("b", 0, 1),
        *names("a", 3, 4),
    ]
    with engine.reading(TEAM) as live:
        assert [live.session.leaf(each).conflict for each in live.session.segments()] == [False]


def test_what_is_copied_says_so_and_keeps_its_words(engine: Engine) -> None:
    engine.append([*opted_in("a"), *talk("a", 1)])
    engine.settle()
    (copy,) = log_of(engine, "team")
    assert copy.id == copy_id("t", "a", "a-0", "team")
    assert copy.origin == "other_session"
    assert copy.message == talk("a", 1)[0].message
    assert copied_from(copy) is not None


def test_only_messages_somebody_spoke_here_are_given(engine: Engine) -> None:
    engine.append(
        [
            *opted_in("a"),
            *talk("a", 1),
            *of("a", custom("note", "a-0", {"type": "mine"}, side=False)),
            *of("a", chat("injected", "note", origin="injected")),
            *of("a", chat("elsewhere", "injected", origin="other_session")),
            *of("a", chat("system", "elsewhere", role="system")),
            *of("a", fact("flush", "system", "flush.requested")),
        ]
    )
    engine.settle()
    assert given(engine) == names("a", 0)
    assert not any(entry.data_type.startswith("om.") for entry in log_of(engine, "team"))


def test_without_the_setting_nothing_is_given(engine: Engine) -> None:
    engine.append(talk("a", 3))
    engine.settle()
    assert log_of(engine, "team") == []
    assert len(log_of(engine, "a")) == 3


def test_a_workspace_gives_nothing_to_itself_or_of_what_it_was_given(engine: Engine) -> None:
    engine.append([*opted_in("team", "other"), *opted_in("other", "other"), *opted_in("a")])
    engine.append([*talk("a", 2), *talk("other", 1), *talk("team", 1)])
    engine.settle()
    sources = [copied_from(entry) for entry in log_of(engine, "other")]
    assert [source.entry_id for source in sources if source is not None] == ["team-0"]


def test_messages_of_every_branch_are_given_in_the_order_they_came(engine: Engine) -> None:
    engine.append([*opted_in("a"), *talk("a", 3)])
    engine.settle()
    engine.append([*of("a", chat("fork", "a-0")), *of("a", chat("a-3", "a-2"))])
    engine.settle()
    assert given(engine) == [*names("a", 0, 1, 2), ("a", "fork"), *names("a", 3)]


def test_the_link_stands_before_the_copy_and_once(engine: Engine) -> None:
    engine.append([*opted_in("a"), *talk("a", 250)])
    engine.settle()
    links = [entry for entry in log_of(engine, "a") if entry.data_type == "om.sources.linked"]
    linked = [str(each["copyId"]) for entry in links for each in links_of(entry)]
    assert linked == [entry.id for entry in log_of(engine, "team")]
    assert len(links) == 3


def links_of(entry: Entry) -> list[dict[str, JsonValue]]:
    assert isinstance(entry.data, dict)
    found = entry.data["links"]
    assert isinstance(found, list)
    return [each for each in found if isinstance(each, dict)]


def test_killed_after_any_statement_everything_is_given_once_and_in_order(
    tmp_path: Path,
) -> None:
    n_statements, n_killed = 0, 0
    while n_statements < MAX_STATEMENTS:
        folder = tmp_path / str(n_statements)
        engine = engine_in(folder)
        engine.append([*opted_in("a"), *opted_in("b"), *talk("a", 3), *talk("b", 2)])
        engine.close()

        def run(folder: Path = folder, left: int = n_statements) -> None:
            with fused() as fuse:
                again = engine_in(folder)
                fuse.left, fuse.blow = left, killed
                again.settle()
                again.close()

        was_killed = dies(run)
        engine = engine_in(folder)
        engine.settle()
        assert sorted(given(engine)) == [*names("a", 0, 1, 2), *names("b", 0, 1)]
        assert [each for each in given(engine) if each[0] == "a"] == names("a", 0, 1, 2)
        assert engine.settle() == 0
        engine.close()
        if not was_killed:
            break
        n_killed += 1
        n_statements += STEP
    assert n_killed > 4


def invalidated(
    session: str, *ids: str, name: str = "gone", reason: str = "revoked", hold: bool = True
) -> list[Entry]:
    return of(
        session, fact(name, None, "sources.invalidated", ids=[*ids], reason=reason, hold=hold)
    )


def test_an_invalidation_follows_the_copies_in_either_order(engine: Engine) -> None:
    engine.append([*opted_in("a"), *talk("a", 2)])
    engine.settle()
    engine.append(invalidated("a", "a-0"))
    engine.settle()
    # And one that was invalidated before its link came, as an import may bring it.
    engine.append(invalidated("a", "late", name="early", reason="corrected"))
    link: JsonObject = {"sourceId": "late", "copyId": "theirs"}
    engine.append(of("a", fact("l", None, "sources.linked", targetSessionId="team", links=[link])))
    engine.settle()
    derived = [e for e in log_of(engine, "team") if e.data_type == "om.sources.invalidated"]
    assert [entry.data for entry in derived] == [
        {
            "type": "om.sources.invalidated",
            "ids": [copy_id("t", "a", "a-0", "team")],
            "reason": "revoked",
            "hold": True,
            "derivedFrom": {"sessionId": "a", "entryId": "gone"},
        },
        {
            "type": "om.sources.invalidated",
            "ids": ["theirs"],
            "reason": "corrected",
            "hold": True,
            "derivedFrom": {"sessionId": "a", "entryId": "early"},
        },
    ]
    with engine.reading(TEAM) as live:
        leaf = live.session.leaf(live.session.head.default_segment)
        text = "".join(block.content for block in reading.context(live.session, leaf))
    assert "mark-a-1" in text
    assert "mark-a-0" not in text


def test_what_is_invalidated_before_it_is_given_is_never_given(engine: Engine) -> None:
    engine.append([*opted_in("a"), *talk("a", 2), *invalidated("a", "a-0")])
    engine.settle()
    assert given(engine) == names("a", 1)


def test_a_correction_that_becomes_a_revocation_follows_again_and_repeats_nothing(
    engine: Engine,
) -> None:
    engine.append([*opted_in("a"), *talk("a", 1)])
    engine.settle()
    for reason in ("corrected", "corrected", "revoked", "deleted"):
        name = f"{reason}-{len(log_of(engine, 'a'))}"
        engine.append(invalidated("a", "a-0", name=name, reason=reason))
        engine.settle()
    derived = [e.data for e in log_of(engine, "team") if e.data_type == "om.sources.invalidated"]
    assert [data["reason"] for data in derived if isinstance(data, dict)] == [
        "corrected",
        "revoked",
    ]


def test_a_hold_that_comes_later_follows_the_copies_once(engine: Engine) -> None:
    engine.append([*opted_in("a"), *talk("a", 1)])
    engine.settle()
    for number, hold in enumerate((False, True, True, False)):
        engine.append(invalidated("a", "a-0", name=f"gone-{number}", hold=hold))
        engine.settle()
    derived = [e.data for e in log_of(engine, "team") if e.data_type == "om.sources.invalidated"]
    assert [data.get("hold", False) for data in derived if isinstance(data, dict)] == [False, True]


def test_a_circle_of_links_comes_to_an_end(engine: Engine) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        link: JsonObject = {"sourceId": "x", "copyId": "x"}
        said = fact(f"l{one}", None, "sources.linked", targetSessionId=other, links=[link])
        engine.append(of(one, said))
    engine.append(invalidated("a", "x"))
    engine.settle()
    assert sum(e.data_type == "om.sources.invalidated" for e in log_of(engine, "b")) == 1
    assert sum(e.data_type == "om.sources.invalidated" for e in log_of(engine, "a")) == 2


def test_an_imported_link_brings_no_copy(engine: Engine) -> None:
    engine.append(talk("a", 1))
    link: JsonObject = {"sourceId": "a-0", "copyId": "theirs"}
    engine.append(of("a", fact("l", "a-0", "sources.linked", targetSessionId="team", links=[link])))
    engine.settle()
    assert log_of(engine, "team") == []


class Owned:
    def __init__(self, **owners: str) -> None:
        self._owners = {session_key("t", name): owner for name, owner in owners.items()}

    def owner_of(self, key: bytes) -> str | None:
        return self._owners.get(key)


@pytest.mark.parametrize(
    ("owners", "is_given"),
    [
        (Owned(a="ann", team="ann"), True),
        (Owned(), True),
        (Owned(a="ann", team="bob"), False),
        (Owned(team="bob"), False),
    ],
)
def test_a_session_gives_only_to_one_of_its_owner(
    tmp_path: Path, owners: Owners, is_given: bool
) -> None:
    engine = engine_in(tmp_path)
    engine.interpreter.owners = owners
    engine.append([*opted_in("a"), *talk("a", 1)])
    engine.settle()
    assert bool(log_of(engine, "team")) is is_given
    engine.append(of("a", fact("flush", "a-0", "flush.requested")))
    engine.settle()
    assert any(entry.data_type == "om.flush.completed" for entry in log_of(engine, "a"))
    engine.close()


def test_a_run_that_settings_have_overtaken_gives_nothing(engine: Engine) -> None:
    engine.append([*opted_in("a"), *talk("a", 1)])
    engine.fold()
    key = session_key("t", "a")
    with engine.reading(key) as live:
        run = decide(live.session, live.session.leaf(live.session.head.default_segment))
    assert run is not None
    nowhere: JsonObject = {}
    engine.append(of("a", fact("off", "a-0", "settings.changed", settings=nowhere)))
    engine.fold()
    with engine.reading(key) as live, pytest.raises(Deferred):
        asyncio.run(engine.interpreter.perform(live.session, run))


def test_a_rebuilt_state_gives_nothing_twice(engine: Engine, tmp_path: Path) -> None:
    engine.append([*opted_in("a"), *talk("a", 3)])
    engine.settle()
    engine.close()
    for each in tmp_path.glob("memory-v*/*"):
        each.unlink()
    again = engine_in(tmp_path)
    again.settle()
    assert given(again) == names("a", 0, 1, 2)
    with again.reading(TEAM) as live:
        assert live.session.head.n_refused == 0
        assert live.session.head.n_duplicates == 3
    again.close()
