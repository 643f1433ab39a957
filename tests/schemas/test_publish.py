"""What is published is what the code says, is valid, and describes what we write."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from ombus_schemas import publish
from ombus_schemas.facts import FACT_TYPE_BY_NAME
from ombus_schemas.topics import TOPICS

from tests.schemas.golden_lines import lines_of

SCHEMAS = (publish.ENTRY_FILE, publish.SUPERVISION_FILE)


def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((publish.FOLDER / name).read_text(encoding="utf-8"))
    return loaded


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(document(name))


def test_the_published_files_are_what_the_code_says() -> None:
    assert publish.stale(publish.FOLDER) == ()
    assert publish.main(["--check"]) == 0


def test_a_file_that_is_not_up_to_date_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish.main(["--to", str(tmp_path)]) == 0
    assert publish.main(["--check", "--to", str(tmp_path)]) == 0
    (tmp_path / publish.ENTRY_FILE).write_text("{}")
    assert publish.main(["--check", "--to", str(tmp_path)]) == 1
    assert publish.ENTRY_FILE in capsys.readouterr().out


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_published_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(document(name))
    assert document(name)["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("entries.jsonl", publish.ENTRY_FILE),
        ("records.jsonl", publish.ENTRY_FILE),
        ("facts.jsonl", publish.ENTRY_FILE),
        ("scopes.jsonl", publish.ENTRY_FILE),
        ("delegations.jsonl", publish.ENTRY_FILE),
        ("supervision.jsonl", publish.SUPERVISION_FILE),
    ],
)
def test_golden_entries_are_valid(file: str, name: str) -> None:
    checker = validator(name)
    for line in lines_of(file):
        if b'"urgent"' not in line and b'"coversUpToId":""' not in line:
            assert [error.message for error in checker.iter_errors(json.loads(line))] == []


@pytest.mark.parametrize("name", sorted(FACT_TYPE_BY_NAME))
def test_a_body_is_judged_by_its_type_whatever_the_kind(name: str) -> None:
    entry = {
        "id": "e1",
        "sessionId": "s",
        "tenantId": "t",
        "parentId": None,
        "kind": "event",
        "schemaVersion": 1,
        "data": {"type": name, "scopeId": 5, "id": 5, "runId": 5, "ids": 5, "flushId": 5},
    }
    is_empty_body = name in {"om.session.erased", "om.session.archived"}
    is_all_optional = name in {"om.flush.requested", "om.compact.requested"}
    assert validator(publish.ENTRY_FILE).is_valid(entry) == (is_empty_body or is_all_optional)
    assert validator(publish.ENTRY_FILE).is_valid({**entry, "data": {"type": "om.future.v9"}})


def test_every_topic_and_every_reference_of_the_asyncapi_document_exists() -> None:
    api = document(publish.ASYNCAPI_FILE)
    assert {channel["address"] for channel in api["channels"].values()} == {t.name for t in TOPICS}
    for reference in _references(api):
        file, _, pointer = reference.partition("#")
        target: Any = document(file.removeprefix("./")) if file else api
        for part in pointer.split("/")[1:]:
            target = target[part]


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in _references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if "$ref" in value else []
    return own + [found for item in value.values() for found in _references(item)]
