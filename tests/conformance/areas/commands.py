"""S22: ``om:status`` and ``om:view``. The status text is our own words and not compared."""

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import resolve_settings
from ombus_streams.memory.commands import BadMode, status, status_json, view, view_json

from tests.conformance.cases import Result, UnknownOp, entries_of, secrets_of


def run(case: JsonObject) -> Result:
    entries, options = entries_of(case["entries"]), _object(case.get("options"))
    session, name, args = case.get("sessionId"), case["command"], _object(case.get("args"))
    session_id = session if isinstance(session, str) else None
    match name:
        case "om:status":
            settings = resolve_settings(_object(options.get("settings")))
            runtime = options.get("runtimeStatus")
            found = status(
                entries, session_id, settings, runtime if isinstance(runtime, dict) else None
            )
            return {"name": name, "value": status_json(found)}
        case "om:view":
            shown = view(entries, session_id, args.get("mode"), secrets_of(options.get("secrets")))
            if isinstance(shown, BadMode):
                error: JsonValue = {"message": shown.message}
                return {"name": name, "error": error, "content": _content(shown.message)}
            return {"name": name, "value": view_json(shown), "content": _content(shown.text)}
        case _:
            raise UnknownOp(name)


def _content(text: str) -> JsonValue:
    return [{"type": "text", "text": text}]


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
