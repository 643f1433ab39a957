"""Bytes become an entry or a bad record; an entry becomes the same bytes every time."""

import json
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_schemas.codec import decode, decode_record, encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.limits import MAX_DEPTH, MAX_ENTRY_BYTES

from tests.schemas.golden_lines import ALL_LINES, objects

ENTRY = Entry(id="e1", session_id="s", tenant_id="t", parent_id=None, kind="custom")


def raw(data: str) -> bytes:
    return f'{{"id":"e1","sessionId":"s","tenantId":"t","kind":"custom","data":{data}}}'.encode()


def reason_of(value: bytes | None, key: bytes | None = b"t/s") -> str:
    with pytest.raises(BadRecord) as caught:
        decode_record(key, value)
    return caught.value.reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null"),
        (b"", "json"),
        (b"\xff\xfe{", "json"),
        (b'{"id":"e1"', "json"),
        (raw('"\\ud83d"'), "json"),
        (b"null", "schema"),
        (b"[]", "schema"),
        (b'"e1"', "schema"),
        (b'{"sessionId":"s","tenantId":"t","kind":"custom"}', "schema"),
        (b'{"id":5,"sessionId":"s","tenantId":"t","kind":"custom"}', "schema"),
        (b'{"id":"","sessionId":"s","tenantId":"t","kind":"custom"}', "id"),
        (b'{"id":"a b","sessionId":"s","tenantId":"t","kind":"custom"}', "id"),
        (raw("1e400"), "range"),
        (raw("1" * 5_000), "range"),
        (raw('"' + "x" * MAX_ENTRY_BYTES + '"'), "oversize"),
        (raw("[" * 2_000 + "]" * 2_000), "depth"),
        (raw("[" * 100_000), "depth"),
    ],
)
def test_what_is_no_entry_is_a_bad_record_with_its_reason(value: bytes | None, reason: str) -> None:
    assert reason_of(value) == reason


@pytest.mark.parametrize("key", [None, b"", b"t", b"t/other", b"other/s", b"t/s/x", b"\xff"])
def test_a_key_that_contradicts_the_body_is_a_bad_record(key: bytes | None) -> None:
    assert reason_of(encode(ENTRY), key) == "key"
    assert decode_record(key_of(ENTRY), encode(ENTRY)) == ENTRY


def test_a_key_that_two_bodies_could_claim_belongs_to_neither() -> None:
    for tenant, session in (("a/b", "c"), ("a", "b/c")):
        body = {"id": "e1", "sessionId": session, "tenantId": tenant, "kind": "custom"}
        assert reason_of(json.dumps(body).encode(), b"a/b/c") == "key"


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_the_entry_is_the_first_of_64_levels() -> None:
    assert decode(raw(nested(MAX_DEPTH - 1))).data is not None
    assert reason_of(raw(nested(MAX_DEPTH))) == "depth"


def test_depth_counts_in_fields_nobody_reads() -> None:
    body = b'{"id":"e1","sessionId":"s","tenantId":"t","kind":"custom","later":%s}'
    assert decode(body % nested(MAX_DEPTH - 1).encode())
    assert reason_of(body % nested(MAX_DEPTH).encode()) == "depth"


def test_brackets_in_texts_have_no_depth() -> None:
    text = json.dumps('[{"' * 500 + "\\" * 3 + '"')
    assert decode(raw(f"[{text},{text}]"))
    assert decode(raw("[" + ",".join(["[{}]"] * 500) + "]"))


@given(st.integers(55, 72), st.lists(st.text(alphabet='[]{}\\"', max_size=6), max_size=6))
def test_depth_is_what_an_untyped_decoder_sees(levels: int, texts: list[str]) -> None:
    value = "[" * levels + json.dumps(texts) + "]" * levels
    is_deep = levels + 2 > MAX_DEPTH
    assert (is_deep and reason_of(raw(value)) == "depth") or (
        not is_deep and bool(decode(raw(value)))
    )


def test_a_reason_never_quotes_the_record() -> None:
    body = b'{"id":"e1","sessionId":"s","tenantId":"t","kind":"custom","origin":"my secret"}'
    with pytest.raises(BadRecord) as caught:
        decode(body)
    assert "secret" not in str(caught.value)


def test_fields_stand_in_declaration_order_and_absent_ones_do_not() -> None:
    entry = Entry(
        id="e1",
        session_id="s",
        tenant_id="t",
        parent_id=None,
        kind="label",
        schema_version=1,
        label="x",
        metadata={"b": 1, "a": {"d": 1, "c": 2}},
        data={"b": 1, "a": 2},
        side=True,
    )
    assert encode(entry) == (
        b'{"id":"e1","sessionId":"s","tenantId":"t","parentId":null,"kind":"label",'
        b'"schemaVersion":1,"data":{"b":1,"a":2},"label":"x",'
        b'"metadata":{"a":{"c":2,"d":1},"b":1},"side":true}'
    )


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes_are_an_entry_or_a_bad_record(value: bytes) -> None:
    assert_total(value)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(ALL_LINES),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255), st.integers(0, 40)), max_size=4),
)
def test_damaged_lines_are_an_entry_or_a_bad_record(
    line: bytes, damages: list[tuple[int, int, int]]
) -> None:
    for at, byte, cut in damages:
        at %= len(line) + 1
        line = line[:at] + bytes([byte]) + line[at + cut :]
    assert_total(line)


@settings(max_examples=300, deadline=None)
@given(objects(), st.sampled_from(["data", "event", "metadata", "message", "id", "parentId"]))
def test_any_json_object_is_an_entry_or_a_bad_record(value: JsonObject, field: str) -> None:
    body = {"id": "e1", "sessionId": "s", "tenantId": "t", "kind": "custom", field: value}
    assert_total(json.dumps(body).encode())


def assert_total(value: bytes) -> None:
    try:
        entry = decode(value)
    except BadRecord:
        return
    once = encode(entry)
    assert decode(once) == entry
    assert encode(decode(once)) == once


FEW: Final = b"[]"
MANY: Final = b"[" + b"[]," * 70 + b"0]"
DEEP: Final = b"[" * 64 + b"]" * 64


def with_skipped(skipped: bytes, event: bytes) -> bytes:
    return b'{"id":"e","sessionId":"s","kind":"k","none":%s,"event":%s}' % (skipped, event)


@pytest.mark.parametrize("event", [FEW, MANY])
def test_bytes_that_are_no_utf8_are_a_bad_record_also_in_a_field_of_no_one(event: bytes) -> None:
    assert reason_of(with_skipped(b'"\xff"', event)) == "json"
    assert decode(with_skipped('"é"'.encode(), event))


@pytest.mark.parametrize("skipped", [b"1e999", b'["[\\"[", 1e999]'])
def test_what_a_field_of_no_one_holds_is_skipped_and_its_depth_counts(skipped: bytes) -> None:
    assert decode(with_skipped(skipped, FEW))
    assert decode(with_skipped(skipped, MANY))
    assert reason_of(with_skipped(skipped, DEEP)) == "depth"
    assert reason_of(with_skipped(DEEP[:64] + skipped + DEEP[64:], FEW)) == "depth"
