"""S3."""

import msgspec
from ombus_schemas.entries import Message
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.tokens import branch_tokens, entry_tokens, message_tokens, text_tokens

from tests.conformance.cases import Result, UnknownOp, entries_of, entry_of


def run(case: JsonObject) -> Result:
    match case["op"]:
        case "text":
            return text_tokens(str(case["text"]))
        case "message":
            return message_tokens(msgspec.convert(case["message"], Message))
        case "entry":
            return entry_tokens(entry_of(case["entry"]))
        case "entries" | "eligible":
            return branch_tokens(entries_of(case["entries"]))
        case op:
            raise UnknownOp(op)
