"""What could not be folded, kept whole: original key, value and headers, and why (section 3).

Whole but for secrets: a bad record passed no admission, so they are concealed here, in place, and
every other byte is as it came.
"""

from collections.abc import Sequence
from typing import Final

from ombus_schemas.concealment import conceal_bytes
from ombus_schemas.errors import BadRecord
from ombus_schemas.headers import dead_letter_headers

from ombus_streams.runtime import emissions
from ombus_streams.runtime.ports import Draft, LogRecord

NULL_VALUE: Final = "ombus-null-value"
"""Header of a dead letter whose original had no value at all."""


def emission(record: LogRecord, topic: str, error: BadRecord, secrets: Sequence[str] = ()) -> bytes:
    """Return the outbox row of a dead letter; its headers name the place, so a copy is known."""
    headers = dead_letter_headers(
        [(name, conceal_bytes(value, secrets)) for name, value in record.headers],
        error,
        topic,
        partition=record.partition,
        offset=record.offset,
    )
    if record.value is None:
        headers = (*headers, (NULL_VALUE, b"1"))
    key, value = (conceal_bytes(part or b"", secrets) for part in (record.key, record.value))
    return emissions.dead_letter(Draft(key=key, value=value, headers=headers))


def draft_of(emitted: bytes) -> Draft:
    """Return the record to append to the dead-letter topic."""
    return emissions.of(emitted).draft
