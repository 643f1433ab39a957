"""The funnel as a role of its own on a real broker, killed while it links and while it copies."""

import os
import time
from pathlib import Path
from typing import Final

import msgspec
import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from ombus_schemas.codec import decode, encode, key_of
from ombus_schemas.copies import CopiedFrom, copied_from
from ombus_schemas.entries import Entry
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.runtime.ports import Draft

from tests.kafka.child import Child, Told, settled
from tests.kafka.world import Place, SystemClock, append_all, make_place, records_of, until
from tests.runtime.test_funnel import engine_in, given
from tests.support.brokers import Service
from tests.support.sessions import chat, fact

SOURCES: Final = ("a", "b", "c")
N_ROUNDS: Final = int(os.environ.get("OMBUS_TEST_KAFKA_ROUNDS", "1"))
"""How often both roles are killed."""
STEP: Final = 20
N_MESSAGES: Final = STEP * (N_ROUNDS + 1)
"""Of each source."""


@pytest.fixture
def place(kafka: Service, tmp_path: Path) -> Place:
    return make_place(kafka.address, tmp_path / "kafka", partitions=3)


def talk(session: str, first: int, n: int) -> list[Draft]:
    said: JsonObject = {"funnel": {"workspace": "team"}}
    entries: list[Entry] = []
    if not first:
        entries.append(fact("set", None, "settings.changed", settings=said))
    entries += [
        chat(f"{session}-{i}", f"{session}-{i - 1}" if i else None, tokens=20)
        for i in range(first, first + n)
    ]
    named = [msgspec.structs.replace(each, session_id=session) for each in entries]
    return [Draft(key=key_of(each), value=encode(each)) for each in named]


def copies_on(log: KafkaLog) -> list[CopiedFrom]:
    """Return where the records of the workspace come from, repeated ones included."""
    key = session_key("t", "team")
    records = [each for each in records_of(log, log.partition_of(key)) if each.key == key]
    sources = [copied_from(decode(each.value or b"")) for each in records]
    return [source for source in sources if source is not None]


def test_killed_while_it_links_and_copies_the_funnel_gives_each_message_once_in_order(
    place: Place, tmp_path: Path
) -> None:
    log = KafkaLog(place.connection, place.topic)
    roles = ("funnel", "projector")
    children = {role: Child(Told(place=place, instance=role, role=role)) for role in roles}
    for first in range(0, N_MESSAGES, STEP):
        for session in SOURCES:
            append_all(log, talk(session, first, STEP))
        if first:
            n_before = len(copies_on(log))
            until(lambda n=n_before: len(copies_on(log)) > n, 60, "copies come")  # type: ignore[misc]  # bound now
            for role in roles:
                children[role].kill()
                time.sleep(0.2)
                children[role] = Child(Told(place=place, instance=role, role=role))
    append_all(
        log,
        [
            Draft(key=key_of(each), value=encode(each))
            for each in (
                msgspec.structs.replace(
                    fact("gone", None, "sources.invalidated", ids=["a-0"], reason="revoked"),
                    session_id="a",
                ),
            )
        ],
    )
    until(lambda: settled(log, list(children.values())), 120, "all is linked and copied")
    for child in children.values():
        assert child.stop() == 0
    copied = [(each.session_id, each.entry_id) for each in copies_on(log)]
    expected = {(name, f"{name}-{n}") for name in SOURCES for n in range(N_MESSAGES)}
    assert set(copied) == expected
    # The same records on the embedded engine: what was repeated has folded to nothing.
    folder = tmp_path / "embedded"
    copy = SqliteLog(folder, SystemClock(), partitions=2)
    for partition in range(log.partitions):
        drafts = [
            Draft(key=each.key, value=each.value, at_ms=each.at_ms)
            for each in records_of(log, partition)
            if each.key and each.value and not each.key.startswith(b"_system/")
        ]
        append_all(copy, drafts)  # type: ignore[arg-type]  # any log does
    copy.close()
    log.close()
    engine = engine_in(folder)
    engine.settle()
    found = given(engine)
    assert len(found) == len(expected)
    for name in SOURCES:
        own = [entry for session, entry in found if session == name]
        assert own == [f"{name}-{n}" for n in range(N_MESSAGES)]
    with engine.reading(session_key("t", "team")) as live:
        assert live.session.head.n_invalidations == 1
        assert live.session.head.n_refused == 0
    engine.close()
