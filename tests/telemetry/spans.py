"""A tracer whose spans a test reads, and an engine that it watches."""

from collections.abc import Sequence
from pathlib import Path

from ombus.telemetry.spans import OpenTelemetry
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.providers.extractive import Extractive
from ombus_streams.runtime.provider import ModelProvider
from ombus_streams.runtime.staff import Providers
from ombus_streams.runtime.telemetry import Telemetry
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.engine import ManualClock


class Recorded:
    """A tracer and what it has recorded."""

    def __init__(self) -> None:
        self._kept, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.otel = provider.get_tracer("test")
        self.tracer = OpenTelemetry(self.otel)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name == name]

    @property
    def names(self) -> set[str]:
        return {span.name for span in self._kept.get_finished_spans()}


def engine_in(folder: Path, telemetry: Telemetry) -> Engine:
    model: ModelProvider = Extractive()
    providers: Providers = {"observer": model, "reflector": model, "dropper": model}
    return Engine(folder, ManualClock(), providers, partitions=2, telemetry=telemetry)


def id_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def links_of(span: ReadableSpan) -> set[tuple[int, int]]:
    return {(link.context.trace_id, link.context.span_id) for link in span.links}


def ids_of(spans: Sequence[ReadableSpan]) -> set[tuple[int, int]]:
    return {id_of(span) for span in spans}
