"""A dry run: what other memory settings would have made of a session that is on the log already.

The session's own entries are folded again in a folder that is thrown away; what workers recorded is
left out, so they run anew under the settings that are tried. The model-free provider answers them,
so nothing is paid for, and what it was shown is counted: about what a model would have read.
"""

import tempfile
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import msgspec
from ombus_schemas.codec import decode_record
from ombus_schemas.entries import SCHEMA_VERSION, Entry
from ombus_schemas.errors import BadRecord
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.resolution import resolve_settings
from ombus_streams.memory import reading
from ombus_streams.memory.tokens import text_tokens
from ombus_streams.runtime.provider import ModelProvider, ModelRequest, TurnEvent

from ombus.memory_settings import SESSION, WRITTEN_BY
from ombus.operator.desk import Desk
from ombus.operator.progress import Tell
from ombus.wiring import Engine, Providers, extractive_providers, open_engine

BATCH: Final = 500


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the memory of the default leaf comes to."""

    results: int
    """What workers have on the log."""
    observations: int
    active: int
    reflections: int
    dropped: int
    pool_tokens: int | float
    context_tokens: int
    """Of the memory block and the recent messages together."""
    compactions: int


class Trial(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings in force beside the ones that were tried."""

    session: str
    entries: int
    turns: int
    """Questions to the provider in the dry run."""
    read_tokens: int
    """About what a model would have read in them."""
    now: Outcome
    tried: Outcome


class Counted:
    """A provider with a meter. It lives for one trial."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider
        self.name, self.model = provider.name, provider.model
        self.n_turns = self.read_tokens = 0

    async def turn(self, request: ModelRequest) -> AsyncGenerator[TurnEvent, None]:
        self.n_turns += 1
        self.read_tokens += text_tokens(msgspec.json.encode(request.messages).decode())
        async for event in self._provider.turn(request):
            yield event


def try_settings(desk: Desk, key: bytes, said: JsonObject, tell: Tell) -> Trial:
    """Return what ``said`` over the settings in force would have made of the session, flushed.

    Nothing is appended to the session itself.

    Raises:
        SettingRemoved, SettingOutOfRange: the settings make no sense.
    """
    said = over(in_force(desk.engine, key), said)
    resolve_settings(said)
    tenant, _, session = key.decode().partition("/")
    meter = Counted(extractive_providers()["observer"])
    providers: Providers = {"observer": meter, "reflector": meter, "dropper": meter}
    with tempfile.TemporaryDirectory(prefix="ombus-trial-") as scratch:
        settings = msgspec.structs.replace(desk.settings, data=scratch, partitions=1)
        engine = open_engine(settings, owns=True, clock=desk.clock, providers=providers)
        try:
            opening = settings_entry(tenant, session, "trial-settings", None, said)
            engine.append([opening])
            n_entries, tip = 0, None
            batch: list[Entry] = []
            for entry in _told(desk.engine, key):
                batch.append(entry)
                n_entries += 1
                tip = tip if entry.side else entry.id
                if len(batch) == BATCH:
                    engine.append(batch)
                    batch.clear()
                    engine.settle()
                    tell(n_entries, 0)
            engine.append([*batch, _flush(tenant, session, tip)])
            engine.settle()
            tried = outcome(engine, key)
        finally:
            engine.close()
    return Trial(
        session=key.decode(),
        entries=n_entries,
        turns=meter.n_turns,
        read_tokens=meter.read_tokens,
        now=outcome(desk.engine, key),
        tried=tried,
    )


def outcome(engine: Engine, key: bytes) -> Outcome:
    """Return what the memory of a session has come to."""
    results = compactions = 0
    for record in engine.log.of_key(key):
        entry = _entry(record.key, record.value)
        if entry is not None and entry.origin == "worker" and entry.id.startswith("om:"):
            results += 1
            compactions += entry.kind == "compaction"
    with engine.reading(key) as live:
        session = live.session
        leaf = session.leaf(session.head.default_segment)
        blocks = reading.context(session, leaf)
        return Outcome(
            results=results,
            observations=leaf.n_observations,
            active=leaf.n_active,
            reflections=leaf.n_reflections,
            dropped=leaf.n_dropped,
            pool_tokens=leaf.active_tokens,
            context_tokens=sum(text_tokens(block.content) for block in blocks),
            compactions=compactions,
        )


def in_force(engine: Engine, key: bytes) -> JsonObject:
    """Return the settings of the default leaf, as they were said."""
    with engine.reading(key) as live:
        session = live.session
        said = session.leaf(session.head.default_segment).settings
    return {name: value for name, value in said.items() if name not in (WRITTEN_BY, SESSION)}


def over(weaker: JsonObject, stronger: JsonObject) -> JsonObject:
    """Return both, key by key within their groups."""
    said = dict(weaker)
    for name, value in stronger.items():
        held = said.get(name)
        merges = isinstance(value, dict) and isinstance(held, dict)
        said[name] = {**held, **value} if merges else value  # type: ignore[dict-item]  # both are
    return said


def _told(engine: Engine, key: bytes) -> Iterator[Entry]:
    """Yield what hosts and importers put on the log: no answers, no settings, no requests."""
    for record in engine.log.of_key(key):
        entry = _entry(record.key, record.value)
        if entry is None or (entry.side and entry.id.startswith("om:")):
            continue
        if entry.side and entry.data_type.startswith(("om.settings.", "om.flush.", "om.compact.")):
            continue
        yield entry


def _entry(key: bytes | None, value: bytes | None) -> Entry | None:
    try:
        return decode_record(key, value)
    except BadRecord:
        return None


def _flush(tenant: str, session: str, tip: str | None) -> Entry:
    return _side(tenant, session, "trial-flush", tip, {"type": "om.flush.requested"})


def settings_entry(
    tenant: str, session: str, entry_id: str, parent: str | None, said: JsonObject
) -> Entry:
    """Return the entry that sets ``said`` for a session."""
    body: JsonObject = {"type": "om.settings.changed", "settings": said}
    return _side(tenant, session, entry_id, parent, body)


def _side(tenant: str, session: str, entry_id: str, parent: str | None, body: JsonObject) -> Entry:
    return Entry(
        id=entry_id,
        session_id=session,
        tenant_id=tenant,
        parent_id=parent,
        kind="custom",
        schema_version=SCHEMA_VERSION,
        data=body,
        side=True,
    )
