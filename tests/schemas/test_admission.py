"""Admission hands back what every reader will decode, or refuses with a stable code."""

import base64
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_schemas.admission import Policy, admit
from ombus_schemas.codec import decode, encode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.limits import MAX_INLINE_MEDIA_BYTES
from ombus_schemas.permissions import Role

from tests.schemas.golden_lines import ALL_LINES, objects, values

ROLES: tuple[Role, ...] = ("publisher", "owner", "gateway", "importer", "worker", "operator")
OBSERVATION: JsonObject = {
    "id": "0000000000a1",
    "content": "User wants pnpm",
    "timestamp": "2026-11-29T10:00:00Z",
    "relevance": "high",
    "sourceEntryIds": ["e1"],
    "tokenCount": 4,
}
RECORDED: JsonObject = {"type": "om.observations.recorded", "observations": [OBSERVATION]}
FOLDED: JsonObject = {
    "type": "om.folded",
    "version": 1,
    "fullFold": False,
    "observations": [],
    "reflections": [],
}


def offer(**members: JsonValue) -> JsonObject:
    return {"id": "e1", "sessionId": "s", "tenantId": "t", "kind": "custom", **members}


def said(*blocks: JsonValue) -> JsonObject:
    return offer(kind="message", message={"role": "user", "content": list(blocks)})


def content_of(entry: Entry) -> list[JsonObject]:
    assert entry.message is not None
    return entry.message.content


def code_of(offered: Entry | JsonObject, role: Role = "publisher") -> str | None:
    try:
        admit(offered, Policy(role=role))
    except Rejected as refused:
        return refused.code
    return None


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"id": ""}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": 5}, "schema"),
        ({"id": "om:observer:1"}, "reserved_id"),
        ({"tenantId": ""}, "tenant"),
        ({"tenantId": "a/b"}, "tenant"),
        ({"tenantId": "_system"}, "tenant"),
        ({"sessionId": "s\n"}, "session"),
        ({"kind": "note"}, "kind"),
        ({"kind": "message"}, "schema"),
        ({"parentId": "é"}, "parent"),
        ({"expectedLeaf": ""}, "parent"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"schemaVersion": 2}, "schema_version"),
        ({"enc": {"alg": "A", "keyId": "k"}}, "enc_reserved"),
        ({"parentid": "e0"}, "unknown_field"),
        ({"message": {"role": "user", "text": "hi"}}, "unknown_field"),
        ({"message": {"role": "user", "content": 5}}, "schema"),
        ({"side": True, "message": {"role": "user", "content": "hi"}}, "side"),
        ({"side": True}, "side"),
        ({"origin": "worker"}, "origin"),
        ({"origin": "nobody"}, "schema"),
        ({"summary": "x" * 4_000_000}, "oversize"),
        ({"data": {"type": "om.future.v9"}}, "forbidden"),
        ({"data": {"memory": FOLDED}}, "forbidden"),
        ({"kind": "compaction", "summary": "x"}, "forbidden"),
    ],
)
def test_a_publisher_is_refused(members: JsonObject, code: str) -> None:
    assert code_of({**offer(), **members}) == code


def test_an_ordinary_entry_is_admitted_and_stamped() -> None:
    entry = admit(offer(parentId=None, timestamp="2026-11-29T10:00:00.123Z"), Policy())
    assert (entry.schema_version, entry.parent_id) == (1, None)
    assert code_of(offer(kind="label", label="x", side=True)) is None


@pytest.mark.parametrize(
    ("data", "roles"),
    [
        (RECORDED, {"importer", "worker"}),
        ({"memory": FOLDED}, {"importer", "worker"}),
        (
            {"type": "om.flush.requested"},
            {"owner", "gateway", "importer", "worker", "operator"},
        ),
        ({"type": "om.session.archived"}, {"importer", "worker", "operator"}),
        (
            {
                "type": "om.scope.access",
                "scopeId": "p",
                "ownerSessionId": "s",
                "principalId": "x",
                "granted": False,
            },
            {"gateway", "importer", "worker", "operator"},
        ),
        ({"type": "acme.note"}, set(ROLES)),
        ({"type": "observations_recorded", "observations": []}, set(ROLES)),
    ],
)
@pytest.mark.parametrize("kind", ["custom", "event", "metadata"])
def test_who_may_append_a_body_is_decided_by_data_alone(
    kind: str, data: JsonObject, roles: set[Role]
) -> None:
    assert {role for role in ROLES if code_of(offer(kind=kind, data=data), role) is None} == roles


def test_memory_is_not_forged_on_a_message_either() -> None:
    assert code_of({**said("hi"), "data": RECORDED}) == "forbidden"


@pytest.mark.parametrize(
    "data",
    [
        {**RECORDED, "coversUpToId": None},
        {**RECORDED, "observations": [{**OBSERVATION, "relevance": "urgent"}]},
        {"type": "om.observations.dropped", "observationIds": ["zzz"]},
        {"type": "om.scope.left"},
        {"type": "om.scope.granted", "scopeId": "p", "principalIds": ["x"]},
        {"type": "om.sources.invalidated", "ids": ["e1"], "reason": "bored"},
        {"type": "om.sources.invalidated", "ids": [], "reason": "revoked"},
        {"type": "om.run.started"},
    ],
)
def test_a_worker_writes_nothing_that_a_fold_would_pass_over(data: JsonObject) -> None:
    assert code_of(offer(data=data), "worker") == "body"


def test_an_importer_keeps_good_items_beside_a_bad_one() -> None:
    bad: JsonObject = {**OBSERVATION, "relevance": "urgent"}
    assert code_of(offer(data={**RECORDED, "observations": [OBSERVATION, bad]}), "importer") is None


def test_an_importer_keeps_bodies_of_a_later_release() -> None:
    assert code_of(offer(data={"type": "om.future.v9"}), "importer") is None
    assert code_of(offer(data={"type": "om.future.v9"}), "worker") == "forbidden"


def test_nobody_says_in_whose_name_a_grant_is_issued() -> None:
    data: JsonObject = {
        "type": "om.scope.granted",
        "scopeId": "p",
        "principalIds": ["x"],
        "openingEntryId": "e0",
        "issuedBy": "somebody else",
    }
    for principal, issued in (("me", "me"), (None, None)):
        entry = admit(offer(data=data), Policy(role="owner", principal_id=principal))
        assert isinstance(entry.data, dict)
        assert entry.data.get("issuedBy") == issued


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("hi", [{"type": "text", "text": "hi"}]),
        ("", []),
        (None, []),
        (["hi", {"type": "x"}], [{"type": "text", "text": "hi"}, {"type": "x"}]),
    ],
)
def test_text_content_becomes_a_text_block(content: JsonValue, blocks: list[JsonObject]) -> None:
    entry = admit(offer(kind="message", message={"role": "user", "content": content}), Policy())
    assert content_of(entry) == blocks


def test_half_a_character_becomes_a_replacement_and_two_halves_become_one() -> None:
    entry = admit(said({"a\ud83d": "x\ude00y \ud83d\ude00"}), Policy())
    assert content_of(entry) == [{"a\ufffd": "x\ufffdy 😀"}]


def test_secrets_leave_decoded_words_and_keys_but_no_ids() -> None:
    offered = offer(
        kind="message",
        message={"role": "user", "content": [{"type": "t", "args": {'k"ey': 'my "k\\ey"'}}]},
        summary='k"ey',
        runId='k"ey',
        metadata={"x": ['k"ey', '"k\\ey"']},
    )
    entry = admit(offered, Policy(secrets=('k"ey', '"k\\ey"', "")))
    assert content_of(entry) == [{"type": "t", "args": {"[REDACTED]": "my [REDACTED]"}}]
    assert (entry.summary, entry.metadata) == ("[REDACTED]", {"x": ["[REDACTED]", "[REDACTED]"]})
    assert entry.run_id == 'k"ey'


def test_a_secret_does_not_break_a_body_of_ours() -> None:
    data: JsonObject = {"type": "om.scope.opened", "id": "tok", "label": "has tok inside"}
    entry = admit(offer(data=data), Policy(role="owner", secrets=("tok", "om.", "label")))
    assert entry.data == {"type": "om.scope.opened", "id": "tok", "label": "has [REDACTED] inside"}


MEDIA = bytes(range(256)) * 200
TEXT = base64.b64encode(MEDIA).decode()
REFERENCE = {"sha256": sha256(MEDIA).hexdigest(), "bytes": len(MEDIA), "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "image", "mimeType": "image/png", "data": TEXT},
            {"type": "image", "mimeType": "image/png", "data": REFERENCE},
        ),
        (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": TEXT},
            },
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": REFERENCE},
            },
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{TEXT}"}},
            {"type": "image_url", "image_url": {"url": REFERENCE}},
        ),
        (
            {"type": "tool_result", "result": [{"deep": [f"data:image/png;base64,{TEXT}"]}]},
            {"type": "tool_result", "result": [{"deep": [REFERENCE]}]},
        ),
    ],
)
def test_long_media_become_a_reference_to_what_was_decoded(
    block: JsonObject, expected: JsonObject
) -> None:
    assert content_of(admit(said(block), Policy())) == [expected]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "mimeType": "image/png", "data": "QUJD"},
        {"type": "tool_result", "data": TEXT},
        {"type": "image", "data": "not base64! " * 5_000},
        {"type": "text", "text": "data:image/png;base64,QUJD"},
    ],
)
def test_short_media_and_long_words_stay(block: JsonObject) -> None:
    assert content_of(admit(said(block), Policy())) == [block]


def test_an_image_far_beyond_the_cap_of_an_entry_is_admitted() -> None:
    text = base64.b64encode(b"x" * 10_000_000).decode()
    entry = admit(said({"type": "image", "mimeType": "image/png", "data": text}), Policy())
    assert len(encode(entry)) < MAX_INLINE_MEDIA_BYTES


def test_what_is_no_json_is_refused() -> None:
    circle: list[JsonValue] = []
    circle.append(circle)
    deep: JsonValue = None
    for _ in range(70):
        deep = [deep]
    assert code_of(offer(data=circle)) == "depth"
    assert (
        code_of(Entry(id="e1", session_id="s", tenant_id="t", kind="custom", data=circle))
        == "depth"
    )
    assert code_of(offer(data=deep)) == "depth"
    assert code_of({}) == "schema"


def test_no_number_is_null() -> None:
    entry = admit(offer(data=[float("nan"), float("inf"), 1.5]), Policy())
    assert entry.data == [None, None, 1.5]


@pytest.mark.parametrize("line", ALL_LINES)
def test_golden_entries_are_admitted_unchanged(line: bytes) -> None:
    entry = decode(line)
    if entry.enc is not None:
        return
    role: Role = "operator" if entry.tenant_id == "_system" else "worker"
    if '"urgent"' in line.decode() or entry.data == {"type": "om.scope.left"}:
        role = "importer"
    issuer = "agent 1" if b"issuedBy" in line else None
    assert encode(admit(entry, Policy(role=role, principal_id=issuer))) == line


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["e1", ""]), "sessionId": st.just("s"), "tenantId": st.just("t")},
        optional={
            "kind": st.sampled_from(["custom", "message", "label", "compaction"]),
            "message": values()
            | st.fixed_dictionaries({"role": st.just("user"), "content": values()}),
            "data": values(),
            "metadata": objects(),
            "summary": st.text(max_size=5),
        },
    ),
    st.sampled_from(ROLES),
)
def test_anything_is_admitted_for_good_or_rejected(offered: JsonObject, role: Role) -> None:
    policy = Policy(role=role, secrets=("a", "0"))
    try:
        entry = admit(offered, policy)
    except Rejected:
        return
    assert decode(encode(entry)) == entry
    assert admit(entry, Policy(role=role)) == entry


RUN_ID = "om:observer:0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("members", "is_taken"),
    [
        ({"data": RECORDED}, True),
        (
            {
                "data": {"type": "om.flush.completed", "flushId": "f"}
                | dict.fromkeys(("observations", "reflections", "dropped"), 0)
            },
            True,
        ),
        ({"kind": "compaction", "summary": "so far", "data": {"keepEntryIds": []}}, True),
        (
            {"data": {"type": "om.sources.linked", "targetSessionId": "team", "links": []}},
            True,
        ),
        ({"data": RECORDED, "side": False}, False),
        ({"data": {"type": "om.flush.requested"}}, False),
        ({"kind": "label", "label": "x"}, False),
        ({"data": RECORDED, "id": "om:observer:short"}, False),
        ({"data": RECORDED, "id": "om:L5"}, False),
    ],
)
def test_an_importer_brings_back_what_a_worker_wrote_and_nothing_else_under_its_id(
    members: JsonObject, is_taken: bool
) -> None:
    entry = {**offer(parentId="e1", side=True), "id": RUN_ID, **members}

    assert code_of(entry, "importer") == (None if is_taken else "reserved_id")
    assert code_of(entry, "owner") is not None
    assert code_of(entry, "publisher") is not None


def test_an_importer_keeps_side_records_of_a_later_release() -> None:
    later = offer(parentId="e1", side=True, data={"type": "om.future.v9"})

    assert code_of(later, "importer") is None
    assert code_of(later, "owner") == "forbidden"
    assert code_of(offer(side=True, data={"type": "acme.note"}), "importer") == "side"
