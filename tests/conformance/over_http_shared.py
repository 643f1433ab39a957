"""The shared-scope vectors as requests: a gateway of its own for each, and one reader.

Grants that a vector has in its owner's session are put on the grants log, as the gateway does: in a
session's log they authorise nothing. A session that a vector cannot read is not there.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from ombus.operator.granting import LOCAL
from ombus_schemas.codec import encode
from ombus_schemas.entries import Entry
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.topics import GRANTS
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.runtime.ports import Draft

from tests.conformance.cases import entries_of, strings_of

GRANT_RECORDS = ("om.scope.granted", "om.scope.revoked")


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


@contextmanager
def grants_log(folder: Path) -> Iterator[SqliteLog]:
    """Lend the log of grants that the gateway of this folder folds."""
    log = SqliteLog(folder / "grants", SystemClock(), topic=GRANTS)
    try:
        yield log
    finally:
        log.close()


def granting(folder: Path, tenant: str, session_id: str, entries: Sequence[Entry]) -> None:
    """Put the grant records among ``entries`` on the grants log, as issued by the owner.

    A grant names the entry that opened its scope; where none has, one that is not there.
    """
    opened: dict[str, str] = {}
    bodies: list[JsonObject] = []
    for entry in entries:
        data = entry.data if isinstance(entry.data, dict) else {}
        if data.get("type") == "om.scope.opened":
            opened.setdefault(str(data.get("id")), entry.id)
        elif data.get("type") in GRANT_RECORDS:
            opening = opened.get(str(data.get("scopeId")), "never")
            bodies.append({**data, "openingEntryId": opening, "issuedBy": LOCAL})
    if bodies:
        bodies.insert(0, {"type": "om.session.owner", "ownerId": LOCAL})
    drafts = [
        Draft(
            key=session_key(tenant, session_id),
            value=encode(
                Entry(
                    id=f"grant{number}",
                    session_id=session_id,
                    tenant_id=tenant,
                    parent_id=None,
                    kind="custom",
                    schema_version=1,
                    data=body,
                )
            ),
        )
        for number, body in enumerate(bodies)
    ]
    if drafts:
        with grants_log(folder) as log:
            log.append(drafts)


def sessions_of(case: JsonObject) -> dict[str, list[Entry]]:
    """Return the sessions of a vector that can be read, by id; the reader's says what it reads."""
    stores, options = case["stores"], case.get("options")
    assert isinstance(stores, dict)
    failing = set(strings_of(case.get("throws")))
    found = {
        name: entries_of(said)
        for name, said in stores.items()
        if name not in failing and isinstance(said, list)
    }
    reader = str(case["principalId"])
    told: list[JsonObject] = [
        {"type": "om.settings.changed", "settings": {"sharedScopes": case["scopes"]}}
    ]
    withheld = options.get("invalidatedIds") if isinstance(options, dict) else None
    if withheld:
        told.append({"type": "om.sources.invalidated", "ids": withheld, "reason": "revoked"})
    found[reader] = [
        *entries_of(case["local"]),
        *(
            Entry(id=f"told{number}", session_id=reader, kind="custom", data=body)
            for number, body in enumerate(told)
        ),
    ]
    return found


def events_of(decisions: JsonValue) -> list[JsonValue]:
    """Return rows of the access log, newest first, as the reference's events."""
    rows = cast("list[JsonObject]", decisions)
    return in_order(
        {
            "scopeId": row["scopeId"],
            "ownerSessionId": row["ownerSessionId"],
            "principalId": row["readerSessionId"],
            "granted": row["granted"],
            **{name: row.get(name, 0) for name in ("branches", "observations", "reflections")},
            **({"reason": row["reason"]} if "reason" in row else {}),
        }
        for row in rows
    )


def in_order(events: Iterable[JsonValue]) -> list[JsonValue]:
    """Return events by scope: those of one read have one time."""
    return sorted(events, key=lambda event: str(cast("JsonObject", event)["scopeId"]))


def recalled_of(answer: JsonObject) -> JsonObject:
    """Return a recall as the vectors have it: sources by id, and no words of ours."""
    found = {key: value for key, value in answer.items() if key != "text" or answer["found"]}
    sources = found.get("sourceEntries")
    if isinstance(sources, list):
        found["sourceEntries"] = [cast("JsonObject", each)["id"] for each in sources]
    return found


def blocks_of(answer: JsonValue) -> list[JsonValue]:
    """Return the blocks of a context as the vectors have them."""
    return [
        {key: block[key] for key in ("title", "content", "priority")}
        for block in cast("list[JsonObject]", answer)
    ]
