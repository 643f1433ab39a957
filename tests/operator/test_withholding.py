"""Records are shown as they are, but for those that may quote what nobody may read any more."""

import pytest
from ombus.operator.withholding import Withholding
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.projection import folded_json

from tests.support.sessions import chat, custom, fact, observations, observed, reflections

PAYLOAD: JsonObject = {"memory": folded_json(False, (), (), ())}
TELLING = [
    custom("c", "m1", PAYLOAD, kind="compaction", summary="told"),
    custom("s", "m1", None, kind="summary", summary="told"),
    custom("p", "m1", PAYLOAD, kind="metadata", side=False),
    custom("o", "m1", observations(observed("told", "m1"), covers=None)),
    custom("r", "m1", reflections()),
    chat("m1", None),
]
OTHERS = [chat("m2", "m1"), fact("f", "m1", "flush.requested"), custom("d", "m1", {"memory": 1})]


@pytest.mark.parametrize("entry", TELLING, ids=[entry.id for entry in TELLING])
def test_what_may_quote_a_withheld_source_is_hidden(entry: Entry) -> None:
    assert Withholding(frozenset({"m1"})).hides(entry)
    assert not Withholding(frozenset()).hides(entry)


@pytest.mark.parametrize("entry", OTHERS, ids=[entry.id for entry in OTHERS])
def test_what_quotes_nothing_is_shown(entry: Entry) -> None:
    assert not Withholding(frozenset({"m1"})).hides(entry)
