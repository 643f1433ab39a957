"""What every typed body of ``data`` has in common: its ``type``, its spelling, how it is read.

Bodies are strict where we write and lenient where we read: fields of a later release are passed
over, a field of the wrong type makes the body count as absent, never as an error.
"""

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from ombus_schemas.jsontext import JsonObject


class Body(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
):
    """An object in ``data`` that names its ``type``; a subclass adds ``tag`` and fields.

    ``None`` is written by nobody: a field that may be missing is ``UNSET`` where null would mean
    something else, and its default where it would not.
    """


BodyT = TypeVar("BodyT", bound=Body)

EntryId = Annotated[str, Meta(extra_json_schema={"pattern": "^[!-~]{1,200}$"})]
KeyPart = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9._:-]{1,128}$"})]
ScopeId = Annotated[
    str,
    Meta(extra_json_schema={"pattern": "^[A-Za-z0-9._:/-]{1,128}$", "not": {"pattern": "\\.\\."}}),
]
BindRef = Annotated[str, Meta(extra_json_schema={"pattern": "^(om|reflection):[a-f0-9]{12}$"})]
PrincipalId = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 256})]
MAX_COUNT: Final = 2**53
"""What every reader of JSON holds exactly; a row holds 64 bits, JSON numbers have no bound."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


def tag_of(body: type[Body]) -> str:
    """Return the ``data.type`` of a kind of body."""
    tag = body.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def data_of(body: Body) -> JsonObject:
    """Return ``body`` as the value of ``Entry.data``.

    ``type`` first, then declaration order, absent fields omitted, maps with sorted keys.
    """
    data: JsonObject = msgspec.to_builtins(body, order="deterministic")
    return data


def read_as(body: type[BodyT], data: JsonObject) -> BodyT | None:
    """Return ``data`` as that kind of body, or ``None`` if it is not well-formed."""
    try:
        return msgspec.convert(data, body)
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError):
        return None  # the last: half a surrogate pair in a member's name
