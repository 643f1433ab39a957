"""Spans: an append's context travels with the record, and what comes of it links back."""

from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="spans need the extra otel")

from ombus.telemetry.spans import tracer_of
from ombus_schemas.headers import APPENDED_AT, headers_of, trace_of
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.telemetry import Telemetry
from ombus_streams.runtime.tracing import UNTRACED

from tests.support.sessions import chat, settings
from tests.telemetry.spans import Recorded, engine_in, id_of, ids_of, links_of

TALK = [
    settings("set", None, observe=30),
    chat("m1", None, "The ferry leaves at 9:15.", tokens=20),
    chat("m2", "m1", "The last one is at 22:40.", tokens=20),
]


def test_folds_and_runs_link_to_the_appends_and_are_no_children_of_theirs(tmp_path: Path) -> None:
    seen = Recorded()
    engine = engine_in(tmp_path, Telemetry(tracer=seen.tracer))

    with seen.otel.start_as_current_span("caller") as caller:
        engine.append(TALK)
    engine.settle()
    engine.close()

    asked, recorded = seen.named("append")
    assert asked.parent is not None
    assert asked.parent.span_id == caller.get_span_context().span_id
    first, *_ = seen.named("fold")
    assert links_of(first) == {id_of(asked)}
    (run,) = seen.named("run observer")
    assert links_of(run) == {id_of(asked)}
    assert first.parent is None
    assert run.parent is None
    assert id_of(run)[0] != id_of(asked)[0]
    # The result is appended inside of its run, and folded as anything else is.
    assert recorded.parent is not None
    assert recorded.parent.span_id == id_of(run)[1]
    assert {id_of(recorded)} in [links_of(span) for span in seen.named("fold")]
    assert run.attributes is not None
    assert run.attributes["ombus.outcome"] == "recorded"


def test_what_is_only_caught_up_on_leaves_no_span(tmp_path: Path) -> None:
    before = Recorded()
    engine = engine_in(tmp_path, Telemetry(tracer=before.tracer))
    engine.append(TALK[:2])
    engine.close()
    after = Recorded()

    engine = engine_in(tmp_path, Telemetry(tracer=after.tracer))
    engine.settle()
    assert after.names == set()

    engine.append(TALK[2:])
    engine.settle()
    engine.close()
    (asked, _) = after.named("append")
    assert links_of(after.named("fold")[0]) == {id_of(asked)}
    assert links_of(after.named("run observer")[0]) == {id_of(asked)}
    assert not ids_of(before.named("append")) & links_of(after.named("run observer")[0])


def test_a_context_that_a_record_brings_is_kept_and_a_copy_gets_none(tmp_path: Path) -> None:
    seen = Recorded()
    engine = engine_in(tmp_path, Telemetry(tracer=seen.tracer))
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    draft = Draft(key=b"t/s", value=b"{}", headers=(("traceparent", theirs.encode()),))

    engine.log.append([draft, Draft(key=b"t/s", value=b"{}")])
    engine.log.append([Draft(key=b"t/s", value=b"{}", at_ms=5)])

    partition = engine.log.partition_of(b"t/s")
    kept, given, copied = engine.log.read(partition, 1, 10)
    engine.close()
    context = trace_of(kept.headers)
    assert context is not None
    assert context.traceparent == theirs
    assert trace_of(given.headers) is not None
    assert copied.headers == ()
    assert APPENDED_AT not in dict(copied.headers)
    assert len(seen.named("append")) == 1


def test_a_run_that_fails_names_its_failure_and_quotes_nothing(tmp_path: Path) -> None:
    seen = Recorded()
    telemetry = Telemetry(tracer=seen.tracer)
    engine = engine_in(tmp_path, telemetry)
    engine.append(TALK)
    engine.fold()
    (task,) = engine.due()
    session = engine.processors[engine.log.partition_of(b"t/s")].session(b"t/s")

    with (
        pytest.raises(ZeroDivisionError),
        telemetry.run(0, session, task.effect),
    ):
        raise ZeroDivisionError("a secret")

    engine.close()
    (run,) = seen.named("run observer")
    assert run.status.description == "ZeroDivisionError"
    assert run.events == ()
    assert "a secret" not in run.to_json()


def test_off_is_no_tracer_and_no_header(tmp_path: Path) -> None:
    assert tracer_of("off") is UNTRACED
    engine = engine_in(tmp_path, Telemetry())
    engine.append(TALK)
    (record,) = engine.log.read(engine.log.partition_of(b"t/s"), 1, 1)
    engine.close()
    assert record.headers == headers_of(TALK[0])
