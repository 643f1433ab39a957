"""Each shape of a secret, through the whole way: nothing that is kept, sent or shown holds it."""

import asyncio
import json
import traceback
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
import structlog
from ombus.cli import logs
from ombus.importers import Imported, open_transcript
from ombus_schemas.admission import Policy, admit
from ombus_schemas.errors import Rejected
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.secrets import needles
from ombus_streams.engine.embedded.engine import Engine
from ombus_streams.memory import reading
from ombus_streams.memory.items import observations, reflections
from ombus_streams.providers.extractive import Extractive
from ombus_streams.runtime.errors import RuntimeFault
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.provider import (
    ModelProvider,
    ModelRequest,
    TurnEvent,
    TurnFailed,
    WorkerName,
)

from tests.support.engine import ManualClock
from tests.support.shapes import KNOWN, Shape, shapes

SHAPES: Final = shapes()
NEEDLES: Final = needles(KNOWN)
TENANT: Final = "acme"
WORKERS: Final[tuple[WorkerName, ...]] = ("observer", "reflector", "dropper")


class Watched:
    """The extractive provider, its requests kept; it may fail with what it was asked."""

    name, model = "watched", "extractive"

    def __init__(self, *, fails: bool = False) -> None:
        self.asked: list[bytes] = []
        self._inner, self._fails = Extractive(), fails

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        self.asked.append(msgspec.json.encode(request))
        if self._fails:
            said = " ".join(shape.text for shape in SHAPES)
            yield TurnFailed(message=f"cannot read: {said}")
            return
        async for event in self._inner.turn(request):
            yield event


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def engine(tmp_path: Path, watched: Watched) -> Iterator[Engine]:
    logs.configure("debug", as_json=True, secrets=NEEDLES)
    made = open_engine(tmp_path / "data", watched)
    yield made
    made.close()
    structlog.reset_defaults()


def open_engine(folder: Path, provider: Watched) -> Engine:
    providers: dict[WorkerName, ModelProvider] = dict.fromkeys(WORKERS, provider)
    return Engine(folder, ManualClock(), providers, partitions=2, secrets=NEEDLES)


def places(shape: Shape) -> list[JsonObject]:
    """Return bodies that hold the text wherever one of an agent can be."""
    trace = f'Traceback (most recent call last):\n  File "a.py", line 3\nValueError: {shape.text}'
    listing: JsonObject = {"files": [{"path": ".env", "content": f"# dev\n{shape.text}\n"}]}
    arguments: JsonObject = {"command": f"run {shape.text}", "by": {shape.text: True}}
    call: JsonObject = {"type": "tool_call", "id": "c", "name": "sh", "arguments": arguments}
    return [
        said("user", {"type": "text", "text": f"remember this please: {shape.text}"}),
        said("assistant", {"type": "thinking", "text": shape.text}, call),
        said("tool", result(shape.text)),
        said("tool", {"type": "tool_result", "id": "c", "name": "sh", "error": trace}),
        said("tool", result(listing)),
        said("tool", result(json.dumps(listing))),
        {"kind": "event", "event": {"output": [shape.text]}},
        {"kind": "custom", "data": {"type": "host.note", shape.text: shape.text}},
        {"kind": "metadata", "metadata": {"env": shape.text}},
        {"kind": "summary", "summary": shape.text},
        {"kind": "label", "label": shape.text},
        {"kind": "model_change", "model": {"headers": shape.text}},
    ]


def result(value: JsonValue) -> JsonObject:
    return {"type": "tool_result", "id": "c", "name": "sh", "result": value}


def said(role: str, *blocks: JsonObject) -> JsonObject:
    return {"kind": "message", "message": {"role": role, "content": list(blocks)}}


def leaks(where: str, *texts: bytes | str) -> list[tuple[str, str]]:
    """Return what is found, in any spelling that the tests know."""
    raw = b"\n".join(text.encode() if isinstance(text, str) else text for text in texts)
    return [
        (where, shape.name)
        for shape in SHAPES
        for secret in shape.secrets
        if any(form.encode() in raw for form in needles((secret,)))
    ]


def files(folder: Path) -> list[bytes]:
    found = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    assert any(path.name.endswith("-wal") for path in folder.rglob("*")), "there is a WAL to grep"
    return found


def test_there_are_forty_shapes() -> None:
    assert len(SHAPES) >= 40
    assert {secret for shape in SHAPES for secret in shape.secrets} >= set(KNOWN)


def test_no_shape_is_kept_sent_or_shown(
    engine: Engine, watched: Watched, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    policy = Policy(role="owner", secrets=NEEDLES, patterns=True)
    n_entries, last = 0, None
    for shape in SHAPES:
        for body in places(shape):
            n_entries += 1
            offered: JsonObject = {"id": f"e{n_entries}", "tenantId": TENANT, "sessionId": "live"}
            entry = admit({**offered, "parentId": last, **body}, policy)
            engine.append([entry])
            last = entry.id
    imported = import_all(engine, tmp_path / "transcript.jsonl")
    for named, parent in (("live", last), ("old", imported)):
        for request in ("om.flush.requested", "om.compact.requested"):
            data: JsonObject = {"type": request}
            offered = {"id": request, "tenantId": TENANT, "sessionId": named, "kind": "custom"}
            asked = {**offered, "parentId": parent, "side": True, "data": data}
            engine.append([admit(asked, policy)])
            engine.settle()

    found = leaks("files", *files(engine.folder))
    n_observations = 0
    for key in engine.sessions():
        with engine.reading(key) as lent:
            session = lent.session
            leaf = session.leaf(session.head.default_segment)
            assert leaf.compaction_id is not None
            blocks = reading.context(session, leaf, secrets=NEEDLES)
            found += leaks("context", *(block.content for block in blocks))
            found += leaks("view", reading.view(session, leaf, "full", NEEDLES).text)
            items = [row.item for row in observations(session, leaf, "visible", "trimmed")]
            n_observations += len(items)
            ids = [item.id for item in items]
            ids += [row.item.id for row in reflections(session, leaf, "visible", "hidden")]
            for memory_id in ids:
                recalled = reading.recall_at(session, leaf, memory_id, NEEDLES)
                found += leaks("recall", repr(recalled))
            page = reading.page_at(session, leaf, leaf.tip_id, 100, secrets=NEEDLES)
            found += leaks("page", repr(page))
    assert n_observations > 20, "the secrets went by an observer that says what it saw"
    assert len(watched.asked) > 2
    found += leaks("prompts", *watched.asked)
    found += leaks("logs", *capsys.readouterr())
    assert found == []


def import_all(engine: Engine, path: Path) -> str | None:
    """Import a transcript with every shape, and lines that are broken by one; return the leaf."""
    lines = []
    for shape in SHAPES:
        lines.append(json.dumps({"role": "user", "content": shape.text}))
        lines.append(json.dumps({"role": "assistant", "content": f"noted: {shape.text}"}))
        lines.append('{"role": "user", "content": ' + json.dumps(shape.text)[:-1])
    path.write_text("\n".join(lines))
    tip, n_imported = None, 0
    for item in open_transcript(path, tenant=TENANT, session="old", format="messages"):
        if isinstance(item, Imported):
            entry = msgspec.structs.replace(item.entry, parent_id=tip)
            entry = admit(entry, Policy(role="importer", secrets=NEEDLES))
            engine.append([entry])
            tip, n_imported = entry.id, n_imported + 1
    assert n_imported >= 2 * len(SHAPES)
    return tip


def test_no_shape_is_in_the_dead_letters_of_bad_records(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    key = session_key(TENANT, "live")
    drafts = []
    for shape in SHAPES:
        text = shape.text.encode()
        as_json = json.dumps({"id": 5, "message": shape.text, shape.text: [shape.text]}).encode()
        for value in (b"\xff\xfe{" + text, text, as_json, as_json[:-1], b"[" + as_json + b"]"):
            headers = (("trace", text),)
            drafts.append(Draft(key=key, value=value, headers=headers))
        drafts.append(Draft(key=text, value=b"{}"))
    engine.log.append(drafts)
    while engine.fold():
        pass
    assert sum(engine.dead_letters.end(each) - 1 for each in range(4)) == len(drafts)
    found = leaks("dead letters", *files(engine.folder / "dead-letters"))
    assert found + leaks("logs", *capsys.readouterr()) == []


def test_a_dead_letter_without_a_secret_is_the_record_to_the_byte(engine: Engine) -> None:
    values = [b"\xff\xfe{", b"", b"[1, 2.0,\t3]", b'{"id": "\\u00e9\\/x"}', "\u2028{".encode()]
    engine.log.append([Draft(key=b"no key", value=value) for value in values])
    while engine.fold():
        pass
    kept = [
        record.value
        for partition in range(4)
        for record in engine.dead_letters.read(partition, 1, 100)
    ]
    assert sorted(kept, key=repr) == sorted(values, key=repr)


def test_what_the_log_holds_by_choice_is_not_sent_to_a_model(
    engine: Engine, watched: Watched
) -> None:
    policy = Policy(role="owner", patterns=False)
    last = None
    for n, shape in enumerate(SHAPES):
        offered: JsonObject = {"id": f"e{n}", "tenantId": TENANT, "sessionId": "s"}
        body = said("user", {"type": "text", "text": f"remember this please: {shape.text}"})
        engine.append([admit({**offered, "parentId": last, **body}, policy)])
        last = f"e{n}"
    asked: JsonObject = {"kind": "custom", "side": True, "data": {"type": "om.flush.requested"}}
    about: JsonObject = {"id": "f", "tenantId": TENANT, "sessionId": "s", "parentId": last}
    engine.append([admit({**about, **asked}, policy)])
    assert len({name for _, name in leaks("log", *files(engine.folder))}) > 40
    engine.settle()
    assert watched.asked
    assert leaks("prompts", *watched.asked) == []
    records = engine.log.of_key(session_key(TENANT, "s"))
    written = [record.value or b"" for record in records if b'"id":"om:' in (record.value or b"")]
    assert written
    assert leaks("records", *written) == []


def test_no_shape_is_in_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", as_json=True, secrets=NEEDLES)
    provider = Watched(fails=True)
    engine = open_engine(tmp_path, provider)
    policy = Policy(role="owner", secrets=NEEDLES, patterns=False)
    try:
        entry: JsonObject = {"id": "e1", "tenantId": TENANT, "sessionId": "s", "parentId": None}
        engine.append([admit({**entry, **said("user", {"type": "text", "text": "hi"})}, policy)])
        asked: JsonObject = {"kind": "custom", "side": True, "data": {"type": "om.flush.requested"}}
        engine.append([admit({**entry, "id": "f", "parentId": "e1", **asked}, policy)])
        engine.fold()
        (task,) = engine.due()
        session = engine.processors[engine.log.partition_of(task.slot[0])].session(task.slot[0])
        with pytest.raises(RuntimeFault) as failed:
            asyncio.run(engine.interpreter.perform(session, task.effect))
        assert asyncio.run(engine.perform(task)) is False
        log = structlog.get_logger()
        try:
            raise ValueError(" ".join(shape.text for shape in SHAPES))
        except ValueError:
            log.exception("import.failed", line=[shape.text for shape in SHAPES], path=tmp_path)
        found = leaks("error", str(failed.value)) + leaks("state", *files(engine.folder))
        assert found + leaks("logs", *capsys.readouterr()) == []
    finally:
        engine.close()
        structlog.reset_defaults()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_refusal_names_no_secret(shape: Shape) -> None:
    entry: JsonObject = {"id": "e1", "tenantId": TENANT, "sessionId": "s", "kind": "message"}
    for member in ({shape.text: 1}, {"origin": shape.text}, {"id": shape.text, "kind": "?"}):
        with pytest.raises(Rejected) as refused:
            admit({**entry, **member}, Policy(secrets=NEEDLES))
        printed = "".join(traceback.format_exception(refused.value, limit=0))
        assert leaks("refusal", printed, repr(refused.value)) == []
