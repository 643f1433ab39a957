"""What is answered in JSON."""

from typing import Final

import msgspec
from ombus_schemas.jsontext import JsonObject
from starlette.responses import Response

JSON: Final = "application/json"


def answered(answer: msgspec.Struct | JsonObject, status: int = 200) -> Response:
    """Return the response that holds ``answer``."""
    return Response(msgspec.json.encode(answer), status, media_type=JSON)
