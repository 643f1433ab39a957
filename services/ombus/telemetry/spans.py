"""Spans by OpenTelemetry: the tracer of ``runtime.tracing`` over whichever provider is wanted.

``traces`` says which: ``global`` is the one the program has set up itself; ``otlp`` and ``console``
make one here, configured by OpenTelemetry's own ``OTEL_*`` variables.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, Literal

import msgspec
from ombus_schemas.headers import TraceContext
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.tracing import UNTRACED, Attributes, Tracer
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Traces = Literal["off", "global", "otlp", "console"]
NAME: Final = "ombus"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class SdkMissing(ImportError):
    """What makes or sends spans is not installed."""


class OpenSpan:
    """A span that is open."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def tell(self, attributes: Attributes) -> None:
        self._span.set_attributes(_named(attributes))

    def fail(self, failure: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, failure))


class OpenTelemetry:
    """Makes spans with one of OpenTelemetry's tracers."""

    is_on = True

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def appending(self, drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
        if any(draft.at_ms is not None for draft in drafts):
            yield drafts
            return
        attributes = {"messaging.batch.message_count": len(drafts)}
        with self._tracer.start_as_current_span(
            "append", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier)
            added = tuple((name, value.encode()) for name, value in carrier.items())
            yield [draft if _has_context(draft) else _with(draft, added) for draft in drafts]

    def folded(self, links: Sequence[TraceContext], began_ns: int, attributes: Attributes) -> None:
        span = self._tracer.start_span(
            "fold",
            # A batch has many causes and no parent, whatever happens to be current.
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=_links(links),
            attributes=_named(attributes),
            start_time=began_ns,
        )
        span.end(time.time_ns())

    @contextmanager
    def running(
        self, links: Sequence[TraceContext], name: str, attributes: Attributes
    ) -> Iterator[OpenSpan]:
        with self._tracer.start_as_current_span(
            name,
            context=Context(),
            kind=SpanKind.INTERNAL,
            links=_links(links),
            attributes=_named(attributes),
            # What went wrong may quote a model: the failure's name is told, never its text.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield OpenSpan(span)

    @contextmanager
    def serving(self, name: str, caller: TraceContext | None) -> Iterator[OpenSpan]:
        with self._tracer.start_as_current_span(
            name,
            context=Context() if caller is None else _extracted(caller),
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield OpenSpan(span)


@lru_cache(maxsize=1)
def tracer_of(traces: Traces) -> Tracer:
    """Return the tracer of this process; the first call makes its provider, if one is to be made.

    Raises:
        SdkMissing: an extra is not installed.
    """
    match traces:
        case "off":
            return UNTRACED
        case "global":
            return OpenTelemetry(trace.get_tracer(NAME))
        case "otlp" | "console":
            return OpenTelemetry(_provider(traces).get_tracer(NAME))


def _provider(traces: Literal["otlp", "console"]) -> trace.TracerProvider:
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

        if traces == "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise SdkMissing("traces need an extra: pip install 'ombus[otel]'") from error
    said = Resource({SERVICE_NAME: NAME}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=said)
    exporter = OTLPSpanExporter() if traces == "otlp" else ConsoleSpanExporter(out=sys.stderr)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _links(contexts: Sequence[TraceContext]) -> list[Link]:
    spans = (trace.get_current_span(_extracted(each)).get_span_context() for each in contexts)
    return [Link(_plain(span)) for span in spans if span.is_valid]


def _plain(span: SpanContext) -> SpanContext:
    return SpanContext(span.trace_id, span.span_id, True, span.trace_flags, span.trace_state)


def _extracted(context: TraceContext) -> Context:
    carrier = {"traceparent": context.traceparent, "tracestate": context.tracestate}
    return _PROPAGATOR.extract(carrier, Context())


def _has_context(draft: Draft) -> bool:
    return any(name == "traceparent" for name, _ in draft.headers)


def _with(draft: Draft, added: tuple[tuple[str, bytes], ...]) -> Draft:
    return msgspec.structs.replace(draft, headers=(*draft.headers, *added))


def _named(attributes: Attributes) -> Mapping[str, str | int | float | bool]:
    return {f"{NAME}.{name}": value for name, value in attributes.items()}
