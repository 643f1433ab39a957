"""pi-OM's memory in a pi file: ledger entries and folded compactions become ours.

Ids, sources and coverage stay as recorded. A compaction keeps from its first kept entry on, which
for us is: it summarises through the entry before it.
"""

from typing import Final

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import FOLDED

from ombus.importers.canonical import Boundary, Draft, Rows
from ombus.importers.fields import flag, text_of
from ombus.importers.media import without_media
from ombus.importers.origin import Spoken

SUMMARY: Final = Spoken("summary", "pi.summary")


def compaction_draft(row: JsonObject) -> Draft:
    kept = row.get("firstKeptEntryId")
    index = row.get("firstKeptEntryIndex")
    data: JsonObject = {"keepEntryIds": [], "strategy": "imported", "trigger": "imported"}
    details = row.get("details")
    if isinstance(details, dict) and details.get("type") == FOLDED:
        data["memory"] = details
    if flag(row, "fromHook") or flag(row, "fromExtension"):
        data["trigger"] = "extension"
    metadata: JsonObject = {}
    if isinstance(row.get("tokensBefore"), int):
        metadata["tokensBefore"] = row["tokensBefore"]
    return Draft(
        kind="compaction",
        summary=text_of(row, "summary"),
        data=data,
        metadata=metadata,
        origin=SUMMARY.origin,
        rule=SUMMARY.rule,
        boundary=Boundary(
            first_kept_id=kept if isinstance(kept, str) else None,
            first_kept_index=index if type(index) is int else None,
        ),
    )


def custom_draft(row: JsonObject, session: Rows) -> Draft:
    """A ledger entry of pi-OM becomes ours; what another extension stored is kept as data."""
    kind, data = text_of(row, "customType"), row.get("data")
    if kind.startswith("om.") and isinstance(data, dict):
        record = {key: _renamed(key, value, session) for key, value in data.items()}
        return Draft(kind="custom", data={**record, "type": kind})
    return Draft(
        kind="custom",
        data={"type": "pi.custom", "customType": kind, "data": without_media(data)},
    )


def _renamed(key: str, value: JsonValue, session: Rows) -> JsonValue:
    """Return ``value`` with native entry ids replaced where the grammar forced another id."""
    if key == "coversUpToId" and isinstance(value, str):
        return session.entry_id(value)
    if key == "sourceEntryIds" and isinstance(value, list):
        return [session.entry_id(item) if isinstance(item, str) else item for item in value]
    if isinstance(value, list):
        return [_renamed("", item, session) for item in value]
    if isinstance(value, dict):
        return {name: _renamed(name, item, session) for name, item in value.items()}
    return value
