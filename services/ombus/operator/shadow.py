"""The same entries remembered twice: as they were, and by other models or under other settings.

Two data folders come of it. ``real`` is a copy of the log, folded. ``shadow`` has what hosts and
importers put on the log, and what the workers of this process made of that. Nothing is appended to
the log that was copied; running again goes on with what has come since.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from ombus_schemas.codec import decode_record
from ombus_schemas.errors import BadRecord
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.resolution import resolve_settings
from ombus_streams.memory import items
from ombus_streams.runtime.ports import Draft, EntryLog, LogRecord

from ombus.operator.progress import Tell, untold
from ombus.operator.replay import Selection, replay
from ombus.operator.replay_logs import LogSource, LogTarget
from ombus.operator.spending import Account, spending
from ombus.operator.trial import Outcome, in_force, outcome, over, settings_entry
from ombus.settings import ProcessSettings
from ombus.wiring import Engine, Providers, open_engine, open_log

REAL: Final = "real"
SHADOW: Final = "shadow"
SETTINGS_ID: Final = "shadow-settings"
_PROGRESS: Final = ".replay"
_SETTINGS: Final = "om.settings."


class Pair(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One session, remembered twice."""

    session: str
    real: Outcome
    shadow: Outcome
    agreement: float
    """Of the sources that either memory rests on, the share that both do; 1 if there are none."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it."""

    folder: str
    records: int
    """Of hosts and importers, given to the shadow now."""
    sessions: tuple[Pair, ...]
    agreement: float
    """The mean over the sessions."""
    spent: tuple[Account, ...]
    """By the shadow's workers, by worker, provider and model."""

    def total(self, which: str) -> dict[str, int | float]:
        """Return the outcomes of ``real`` or ``shadow``, added up."""
        sums: dict[str, int | float] = {}
        for pair in self.sessions:
            for name, value in _numbers(pair.real if which == REAL else pair.shadow).items():
                sums[name] = sums.get(name, 0) + value
        return sums


def shadow(
    log: EntryLog,
    settings: ProcessSettings,
    into: Path,
    *,
    sessions: Sequence[str] = (),
    said: JsonObject | None = None,
    providers: Providers | None = None,
    tell: Tell = untold,
) -> Comparison:
    """Remember the sessions of ``log`` again under ``settings``, and compare.

    ``said`` are memory settings over those in force in each session.

    Raises:
        SettingRemoved, SettingOutOfRange: the settings make no sense.
        Busy: another process folds one of the two folders.
    """
    selection = Selection(sessions=tuple(sessions))
    real = _opened(settings, into / REAL, None)
    try:
        replay(LogSource(log), LogTarget(real.log), selection, into / _PROGRESS)
        while real.fold():
            pass
        working = _opened(settings, into / SHADOW, providers)
        try:
            if said:
                _set(real, working, said)
            source = _Told(LogSource(log), keeps_settings=not said)
            done = replay(source, _Worked(working), selection, into / _PROGRESS, tell=tell)
            working.settle()
            pairs = tuple(_pair(real, working, key) for key in real.sessions())
            spent = spending(working, ("worker", "provider", "model"))
        finally:
            working.close()
    finally:
        real.close()
    agreements = [pair.agreement for pair in pairs]
    return Comparison(
        folder=str(into),
        records=done.copied,
        sessions=pairs,
        agreement=sum(agreements) / len(agreements) if agreements else 1.0,
        spent=tuple(spent),
    )


class _Told:
    """What hosts and importers put on the log: no worker's answer, perhaps no settings."""

    def __init__(self, source: LogSource, *, keeps_settings: bool) -> None:
        self._source, self._keeps_settings = source, keeps_settings

    @property
    def incarnation(self) -> str:
        return self._source.incarnation

    def count(self, after: dict[int, int]) -> int:
        return self._source.count(after)

    def records(self, after: dict[int, int]) -> Iterator[LogRecord]:
        return (record for record in self._source.records(after) if self._is_told(record))

    def _is_told(self, record: LogRecord) -> bool:
        try:
            entry = decode_record(record.key, record.value)
        except BadRecord:
            return False
        if entry.side and entry.id.startswith("om:"):
            return False
        return self._keeps_settings or not (entry.side and entry.data_type.startswith(_SETTINGS))


class _Worked(LogTarget):
    """The shadow's log: what is appended is remembered before more comes, as it was once."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.log)
        self._engine = engine

    def append(self, originals: Sequence[LogRecord], drafts: Sequence[Draft]) -> None:
        super().append(originals, drafts)
        self._engine.settle()


def _opened(settings: ProcessSettings, folder: Path, providers: Providers | None) -> Engine:
    chosen = msgspec.structs.replace(settings, data=str(folder))
    open_log(folder, settings.partitions).close()
    return open_engine(chosen, owns=True, providers=providers)


def _set(real: Engine, working: Engine, said: JsonObject) -> None:
    """Let each session that is new to the shadow open with its settings and ``said`` over them."""
    there = {*working.sessions()}
    for key in real.sessions():
        if key in there:
            continue
        tenant, _, session = key.decode().partition("/")
        wanted = over(in_force(real, key), said)
        resolve_settings(wanted)
        working.append([settings_entry(tenant, session, SETTINGS_ID, None, wanted)])


def _pair(real: Engine, working: Engine, key: bytes) -> Pair:
    mine, other = _cited(real, key), _cited(working, key)
    either = mine | other
    return Pair(
        session=key.decode(),
        real=outcome(real, key),
        shadow=outcome(working, key),
        agreement=len(mine & other) / len(either) if either else 1.0,
    )


def _cited(engine: Engine, key: bytes) -> set[str]:
    """Return the sources that the active observations of the default leaf rest on."""
    with engine.reading(key) as live:
        session = live.session
        leaf = session.leaf(session.head.default_segment)
        found = items.observations(session, leaf, *items.ACTIVE)
        return {source for row in found for source in row.item.source_entry_ids}


def _numbers(found: Outcome) -> dict[str, int | float]:
    value: dict[str, int | float] = msgspec.to_builtins(found)
    return value
