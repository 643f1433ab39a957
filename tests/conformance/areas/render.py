"""S9: the advisory always stands under the title."""

from typing import cast

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.render import MAX_BYTES, Advisory, OutlineLine, render_memory

from tests.conformance.cases import (
    Result,
    UnknownOp,
    number_of,
    observations_in,
    reflections_in,
    secrets_of,
)


def run(case: JsonObject) -> Result:
    if case["op"] != "render":
        raise UnknownOp(case["op"])
    return rendered(case, "always")


def rendered(case: JsonObject, advisory: Advisory) -> str:
    """Return the render a case asks for; options that are a list are the secrets."""
    options = case.get("options")
    if not isinstance(options, dict):
        options = {"secrets": options}
    max_bytes = options.get("maxBytes")
    return render_memory(
        observations_in(case["observations"]),
        reflections_in(case["reflections"]),
        outline=[_line(item) for item in cast("list[JsonValue]", options.get("outline") or [])],
        secrets=secrets_of(options.get("secrets")),
        max_bytes=MAX_BYTES if max_bytes is None else number_of(max_bytes),
        advisory="never" if options.get("advertiseRecall") is False else advisory,
    )


def _line(value: JsonValue) -> OutlineLine:
    assert isinstance(value, dict)
    label = value.get("label")
    return OutlineLine(str(value["id"]), label if isinstance(label, str) else None)
