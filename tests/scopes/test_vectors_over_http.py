"""The vectors of shared scopes through the HTTP API, each in a tenant of its own.

Grants that a vector has in its owner's session are put on the grants log, as the gateway does: in a
session's log they authorise nothing. A session that a vector cannot read is not there.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.topics import GRANTS
from ombus_streams.engine.embedded.log import SqliteLog

from tests.conformance.cases import Case, entries_of, load, strings_of
from tests.gateway.serving import Running, running
from tests.scopes.fleet import Owner, SystemClock, put

VECTORS = Path(__file__).parents[1] / "conformance" / "vectors" / "shared_scopes.json"
NOT_OVER_HTTP = {
    "empty_scopes": "without a declaration nothing is asked, and nothing logged",
    "merge": "no route returns it; context and recall below are made of it",
    "context_blocks_invalidated_foreign_source": "the reference shows a reflection whose support "
    "has lost its sources; ours does not (design.md section 10)",
}
CASES = [case for case in load(VECTORS) if case.name not in NOT_OVER_HTTP]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("vectors")) as found:
        yield found


class Seeded:
    """The sessions of one vector, and a reader."""

    def __init__(self, served: Running, case: Case, number: int) -> None:
        self.served, self.tenant = served, f"case{number}"
        self.reader = str(case.input["principalId"])
        token = served.token("supervisor", tenant=self.tenant)
        self.headers = {"Authorization": f"Bearer {token}"}
        stores, declared = case.input["stores"], case.input["scopes"]
        assert isinstance(stores, dict)
        assert isinstance(declared, dict)
        failing = set(strings_of(case.input.get("throws")))
        sessions = {name: entries_of(said) for name, said in stores.items() if name not in failing}
        sessions[self.reader] = entries_of(case.input["local"])
        settings: JsonObject = {"sharedScopes": declared}
        folder = served.gateway.host.desk.settings.folder
        grants = SqliteLog(folder / "grants", SystemClock(), topic=GRANTS)
        for name, entries in sessions.items():
            self._append(name, entries, settings if name == self.reader else None)
        for name, said in stores.items():
            self._grant(grants, name, entries_of(said))
        grants.close()

    def get(self, path: str, **params: str | int) -> JsonObject:
        answer = self.served.http.get(
            f"/v1/sessions/{self.reader}/{path}", params=params, headers=self.headers
        )
        assert answer.status_code == 200, answer.text
        found: JsonObject = answer.json()
        return found

    def _append(self, session: str, entries: list[Entry], settings: JsonObject | None) -> None:
        own = {"session_id": session, "tenant_id": self.tenant, "schema_version": 1}
        bodies = list(entries)
        if settings is not None:
            said: JsonObject = {"type": "om.settings.changed", "settings": settings}
            bodies.append(Entry(id="settings", session_id=session, kind="custom", data=said))
        parent: str | None = None
        for entry in bodies:
            put(
                self.served.gateway.host.engine.log,
                msgspec.structs.replace(entry, parent_id=parent, **own),
            )
            parent = entry.id

    def _grant(self, log: SqliteLog, session: str, entries: list[Entry]) -> None:
        owner = Owner(log, session, self.tenant)
        owner.take()
        opened: dict[str, str] = {}
        for entry in entries:
            data = entry.data
            assert data is None or isinstance(data, dict)
            kind = data.get("type") if data is not None else None
            if data is not None and kind == "om.scope.opened":
                opened.setdefault(str(data["id"]), entry.id)
            elif data is not None and kind in ("om.scope.granted", "om.scope.revoked"):
                scope, named = str(data["scopeId"]), strings_of(data["principalIds"])
                if kind == "om.scope.granted":
                    owner.grant(*named, scope_id=scope, opening=opened.get(scope, "never"))
                else:
                    owner.revoke(*named, scope_id=scope)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_a_vector_holds_over_http(served: Running, number: int) -> None:
    case = CASES[number]
    seeded = Seeded(served, case, number)
    expected = case.expected
    match case.input["op"]:
        case "resolve":
            assert isinstance(expected, dict)
            seeded.get("context")
            decisions = seeded.get("scopes/access")["decisions"]
            assert isinstance(decisions, list)
            assert [_event(each) for each in decisions] == expected["events"]
        case "shared_context":
            assert isinstance(expected, list)
            blocks = seeded.get("context", recent=1)["blocks"]
            assert isinstance(blocks, list)
            for shown, wanted in zip(blocks, expected, strict=True):
                assert isinstance(shown, dict)
                assert isinstance(wanted, dict)
                assert _lines(shown) == _lines(wanted)
        case "shared_recall":
            assert isinstance(expected, dict)
            recalled = seeded.get(f"memories/{case.input['id']}")["recalled"]
            assert isinstance(recalled, dict)
            assert _recalled(recalled) == _recalled(expected)


def _event(row: object) -> JsonObject:
    assert isinstance(row, dict)
    found: JsonObject = {
        "scopeId": row["scopeId"],
        "ownerSessionId": row["ownerSessionId"],
        "principalId": row["readerSessionId"],
        "granted": row["granted"],
    }
    for name in ("branches", "observations", "reflections"):
        found[name] = row.get(name, 0)
    return found | ({"reason": row["reason"]} if "reason" in row else {})


def _lines(block: JsonObject) -> list[str]:
    """Return what a block says below our own words at its top."""
    lines = str(block["content"]).split("\n")
    return lines[3:] if lines[0].startswith("# ") else lines


def _recalled(answer: JsonObject) -> JsonObject:
    found = {key: value for key, value in answer.items() if key != "text"}
    sources = found.get("sourceEntries")
    if isinstance(sources, list):
        found["sourceEntries"] = [
            each["id"] if isinstance(each, dict) else each for each in sources
        ]
    return found
