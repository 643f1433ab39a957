"""The terms a leaf is folded under: the settings, work scopes and host's run in force on it."""

from typing import Final

from ombus_schemas.entries import Entry
from ombus_schemas.ids import ROOT_SCOPE
from ombus_schemas.resolution import resolve_settings
from ombus_schemas.settings import MemorySettings, SettingOutOfRange, SettingRemoved

from ombus_streams.memory import keys, scopes
from ombus_streams.memory.head import LeafHead, ScopeRow
from ombus_streams.memory.scopes import ScopeMap
from ombus_streams.memory.session import Session

RUN_LAPSES_AFTER_MS: Final = 3_600_000
"""A host run that never ended stops holding back the compactor after this much append time."""

_DEFAULTS: Final = MemorySettings()


def settings_of(session: Session, leaf: LeafHead) -> MemorySettings:
    """Return the memory settings in force on the leaf: facts of its view, else the defaults."""
    if not leaf.settings:
        return _DEFAULTS
    known = session.settings_by_leaf.get(leaf.segment)
    if known is None:
        try:
            known = resolve_settings(leaf.settings)
        except (SettingRemoved, SettingOutOfRange):
            known = _DEFAULTS
        session.settings_by_leaf[leaf.segment] = known
    return known


def scope_map_of(session: Session, leaf: LeafHead) -> ScopeMap:
    """Return the work scopes of the view, without what records bind by themselves."""
    known = session.scope_maps.get(leaf.segment)
    if known is None:
        known = scopes.EMPTY
        prefix = keys.of_leaf(session.prefix, b"g", leaf.segment)
        for _, row in session.scan(prefix, ScopeRow):
            known = scopes.evolve(known, Entry(id="", session_id="", kind="", data=row.value))
        session.scope_maps[leaf.segment] = known
    return known


def scope_at(session: Session, leaf: LeafHead, ordinal: int) -> str:
    """Return the scope on the stack at an entry of the view (design.md section 5)."""
    prefix = keys.of_leaf(session.prefix, b"g", leaf.segment)
    start = keys.item(session.prefix, b"g", leaf.segment, ordinal)
    for _, row in session.scan(prefix, ScopeRow, start, reverse=True):
        return row.scope_id
    return ROOT_SCOPE


def is_scope_record_folded(session: Session, leaf: LeafHead, entry_id: str) -> bool:
    """Say whether the scope record of this id changed anything on the leaf."""
    place = session.place_of(entry_id)
    if place is None:
        return False
    key = keys.item(session.prefix, b"g", leaf.segment, place.ordinal)
    return session.read(key, ScopeRow) is not None


def is_run_active(session: Session, leaf: LeafHead) -> bool:
    """Say whether a host's run is under way: started, not ended, and not lapsed by append time."""
    return leaf.run_id is not None and session.head.at_ms - leaf.run_at_ms < RUN_LAPSES_AFTER_MS
