"""Timestamps of transcripts as text: what the host claimed, and how good the claim is."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from ombus_schemas.jsontext import JsonValue

Quality = Literal["native", "naive", "missing"]
"""``naive``: without a time zone, kept as it is."""

_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLISECOND: Final = 100_000_000_000
"""Smaller numbers are seconds: as milliseconds they would be before 1973."""
_LAST_MILLISECOND: Final = 253_402_300_799_999


def instant(value: JsonValue) -> tuple[str, Quality]:
    """Return ISO text and its quality; what is no timestamp gives empty text."""
    if isinstance(value, str):
        found = _ISO.fullmatch(value)
        if found is None:
            return "", "missing"
        return value, "native" if found["zone"] else "naive"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "", "missing"
    milliseconds = value if value >= _FIRST_MILLISECOND else value * 1000
    if not 0 < milliseconds <= _LAST_MILLISECOND:
        return "", "missing"
    moment = _EPOCH + timedelta(milliseconds=int(milliseconds))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z", "native"
