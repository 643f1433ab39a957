"""Items of the OpenAI Agents SDK, as ``result.to_input_list()`` gives them."""

from collections.abc import Iterable

from ombus_schemas.jsontext import JsonObject

from ombus.client.shapes.blocks import call, entry, field, plain, result, said, text_of, thinking


def from_openai_agents(items: Iterable[object]) -> list[JsonObject]:
    """Return one entry an item; items of kinds we do not know are kept as blocks of the model."""
    names: dict[str, str] = {}
    return [_entry(item, names) for item in items]


def _entry(item: object, names: dict[str, str]) -> JsonObject:
    entry_id = text_of(item, "id")
    match text_of(item, "type"):
        case "function_call":
            call_id, name = text_of(item, "call_id"), text_of(item, "name")
            names[call_id] = name
            return entry("assistant", [call(call_id, name, field(item, "arguments"))], entry_id)
        case "function_call_output":
            call_id = text_of(item, "call_id")
            output = field(item, "output")
            block = result(call_id, names.get(call_id, ""), output, is_error=False)
            return entry("tool", [block], entry_id)
        case "reasoning":
            blocks = [thinking(str(each["text"])) for each in said(field(item, "summary"))]
            return entry("assistant", blocks, entry_id)
        case "message" | "":
            role = text_of(item, "role") or "user"
            role = "system" if role == "developer" else role
            return entry(role, list(said(field(item, "content"))), entry_id)
        case _:
            kept = plain(item)
            return entry("assistant", [kept] if isinstance(kept, dict) else [], entry_id)
