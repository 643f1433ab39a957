"""Known secrets leave decoded strings and keys, and what is left is a value of the same shape."""

from hypothesis import given
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.redaction import redact, redact_text

from tests.schemas.golden_lines import values


def test_every_occurrence_goes_in_the_order_of_the_secrets() -> None:
    assert redact_text("a.b.a", ["a", ""]) == "[REDACTED].b.[REDACTED]"
    assert redact_text("Key key", ["key"]) == "Key [REDACTED]"
    assert redact_text("xy", ["x", "RED"]) == "[[REDACTED]ACTED]y"


def test_keys_that_become_equal_are_numbered() -> None:
    value: JsonValue = {"s1": 1, "s2": 2, "s3": 3}
    secrets = ["s1", "s2", "s3"]
    assert redact(value, secrets) == {"[REDACTED]": 1, "[REDACTED]__2": 2, "[REDACTED]__3": 3}


def test_a_container_32_deep_is_replaced_and_a_word_there_is_not() -> None:
    value: JsonValue = ["leaf", []]
    for _ in range(31):
        value = [value]
    inner = redact(value, [])
    for _ in range(31):
        assert isinstance(inner, list)
        inner = inner[0]
    assert inner == ["leaf", "[MaxDepth]"]
    assert redact(value, [], max_depth=None) == value


@given(values())
def test_without_a_secret_nothing_changes(value: JsonValue) -> None:
    assert repr(redact(value, [])) == repr(value)
