"""Headers say what a record is without its body, and the same on every sending."""

from ombus_schemas import headers
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.errors import BadRecord

from tests.schemas.golden_lines import ALL_LINES

ENTRY = Entry(
    id="e1",
    session_id="s",
    tenant_id="t",
    kind="custom",
    schema_version=1,
    timestamp="2026-11-29T10:00:00Z",
    origin="human",
    data={"type": "om.run.started", "runId": "r"},
)
TRACE = headers.TraceContext(
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", tracestate="v=1"
)


def test_headers_are_cloud_events_and_ours_in_a_fixed_order() -> None:
    assert headers.headers_of(ENTRY) == (
        ("ce_specversion", b"1.0"),
        ("ce_id", b"e1"),
        ("ce_source", b"/ombus/t/s"),
        ("ce_type", b"om.run.started"),
        ("content-type", b"application/json"),
        ("ombus-schema-version", b"1"),
        ("ce_time", b"2026-11-29T10:00:00Z"),
        ("ombus-origin", b"human"),
    )


def test_an_entry_without_a_time_gets_none() -> None:
    entry = Entry(id="e1", session_id="s", tenant_id="t", kind="message")
    names = dict(headers.headers_of(entry))
    assert "ce_time" not in names
    assert names["ce_type"] == b"ombus.entry.message"


def test_every_golden_entry_has_headers() -> None:
    for line in ALL_LINES:
        assert all(isinstance(value, bytes) for _, value in headers.headers_of(decode(line)))


def test_a_trace_context_comes_back_if_it_is_well_formed() -> None:
    assert headers.trace_of(headers.headers_of(ENTRY, TRACE)) == TRACE
    for bad in (b"", b"\xff", b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01", b"01-x"):
        assert headers.trace_of([("traceparent", bad)]) is None
    assert headers.trace_of([]) is None


def test_a_replay_keeps_the_first_append_time_and_no_trace() -> None:
    once = headers.replayed(headers.headers_of(ENTRY, TRACE), 1_700_000_000_000)
    twice = headers.replayed(once, 1_800_000_000_000)
    assert headers.appended_at_of(twice) == 1_700_000_000_000
    assert headers.trace_of(twice) is None
    assert once == twice


def test_an_append_time_that_is_no_number_is_none() -> None:
    for bad in (b"", b"-5", b"1e3", b"\xff", b"9" * 30):
        assert headers.appended_at_of([(headers.APPENDED_AT, bad)]) is None
    assert headers.appended_at_of([]) is None


def test_a_dead_letter_keeps_its_headers_and_adds_why_and_whence() -> None:
    original = (("x", b"\xff"),)
    error = BadRecord("json", "is malformed")
    letter = headers.dead_letter_headers(original, error, "ombus.session.entries", 3, 42)
    assert letter[:1] == original
    assert dict(letter)["__streams.errors.offset"] == b"42"
    assert dict(letter)["ombus-failure-reason"] == b"json"
