"""Who may append which bodies, and what a body of ours must keep to (design.md section 3).

Memory is written by workers and importers, a session is steered by its owner, and nobody can do
either by spelling a body's name on an entry of another kind: ``data`` alone decides, as in folds.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import UNSET

from ombus_schemas.bodies import read_as, tag_of
from ombus_schemas.control import SessionOwner, SettingsChanged, SourcesInvalidated, SourcesLinked
from ombus_schemas.copies import copy_id
from ombus_schemas.entries import Entry
from ombus_schemas.errors import Rejected
from ombus_schemas.facts import FACT_TYPE_BY_NAME, fact_of
from ombus_schemas.ids import is_result_entry_id
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.records import (
    FOLDED,
    OBSERVATIONS_DROPPED,
    OBSERVATIONS_RECORDED,
    REFLECTIONS_RECORDED,
    ObservationsRecorded,
    ReflectionsRecorded,
    compaction_of,
    folded_of,
    record_of,
)
from ombus_schemas.requests import (
    CompactCompleted,
    CompactFailed,
    CompactRequested,
    FlushCompleted,
    FlushFailed,
    FlushRequested,
    RunFinished,
    RunStarted,
)
from ombus_schemas.scopes import (
    ScopeAccess,
    ScopeBound,
    ScopeClosed,
    ScopeEntered,
    ScopeGranted,
    ScopeLeft,
    ScopeOpened,
    ScopeRevoked,
    ScopeUnbound,
)

Role = Literal["publisher", "owner", "gateway", "importer", "worker", "operator"]
"""Publishers say what happened; the session's owner steers it too; gateways do so for others and
log their decisions; importers and workers write memory; operators write the log's own records."""

RESERVED_PREFIX: Final = "om."
"""``data.type`` of every body of ours, those of later releases included."""
ISSUED_NAMES: Final = frozenset(tag_of(body) for body in (SessionOwner, ScopeGranted, ScopeRevoked))
"""Bodies that say who issued them; admission stamps it."""

_RECORD_NAMES: Final = frozenset(
    {OBSERVATIONS_RECORDED, REFLECTIONS_RECORDED, OBSERVATIONS_DROPPED}
)
_OWNER_TYPES: Final = (
    RunStarted,
    RunFinished,
    SettingsChanged,
    FlushRequested,
    CompactRequested,
    SourcesInvalidated,
    SessionOwner,
    ScopeOpened,
    ScopeClosed,
    ScopeEntered,
    ScopeLeft,
    ScopeBound,
    ScopeUnbound,
    ScopeGranted,
    ScopeRevoked,
)
_ANSWER_NAMES: Final = frozenset(
    tag_of(body) for body in (FlushCompleted, FlushFailed, CompactCompleted, CompactFailed)
)
_WRITTEN_NAMES: Final = _RECORD_NAMES | _ANSWER_NAMES | {tag_of(SourcesLinked)}
_OWNER_NAMES: Final = frozenset(tag_of(body) for body in _OWNER_TYPES)
_ALL_NAMES: Final = frozenset(FACT_TYPE_BY_NAME) | _RECORD_NAMES
_NAMES_BY_ROLE: Final[Mapping[Role, frozenset[str]]] = {
    "publisher": frozenset(),
    "owner": _OWNER_NAMES,
    "gateway": _OWNER_NAMES | {tag_of(ScopeAccess)},
    "importer": _ALL_NAMES,
    "worker": _ALL_NAMES,
    "operator": frozenset(FACT_TYPE_BY_NAME),
}
_WRITERS_OF_MEMORY: Final[frozenset[Role]] = frozenset({"importer", "worker"})


def check_body(entry: Entry, role: Role) -> None:
    """Return if ``role`` may append this body and the body is well-formed.

    Raises:
        Rejected: ``forbidden`` or ``body``.
    """
    name = entry.data_type
    if name.startswith(RESERVED_PREFIX):
        _check_named(entry, name, role)
    if _holds_folded(entry.data) and role not in _WRITERS_OF_MEMORY:
        raise _forbidden(entry, "data.memory", FOLDED, role)
    if entry.kind == "compaction":
        _check_compaction(entry, role)
    is_ours = name in _ALL_NAMES or (role == "importer" and name.startswith(RESERVED_PREFIX))
    if entry.side and not (is_ours or entry.kind in ("label", "compaction")):
        raise Rejected("side", entry.id, "side", "is for records of workers and control entries")


def may_have_worker_id(entry: Entry, role: Role) -> bool:
    """Say whether ``role`` may append this entry under an id that begins with ``om:``.

    Workers may. An importer may bring back what a worker wrote, and nothing else: a side record of
    memory, a link to copies or the answer to a request, under the id of a run. So an export comes
    home under its own ids, and no transcript can take the id of a run for a message.
    """
    if role != "importer":
        return role == "worker"
    name = entry.data_type
    is_written = name in _WRITTEN_NAMES or entry.kind == "compaction"
    return entry.side and is_written and is_result_entry_id(entry.id)


def _check_named(entry: Entry, name: str, role: Role) -> None:
    if role == "importer" and name not in _ALL_NAMES:
        return  # A later release's body: kept as it came, folded to nothing.
    if name not in _NAMES_BY_ROLE[role]:
        raise _forbidden(entry, "data.type", name, role)
    if name in _RECORD_NAMES:
        _check_record(entry, role)
    elif not _is_strict(entry, role):
        raise Rejected("body", entry.id, f"data of {name}", "does not keep to its form")


def _check_record(entry: Entry, role: Role) -> None:
    """A record that would be ignored is refused; so is a worker's with one item that would be."""
    record = record_of(entry)
    if record is None:
        raise Rejected("body", entry.id, f"data of {entry.data_type}", "would be ignored whole")
    if role != "worker":
        return
    assert isinstance(entry.data, dict)
    match record:
        case ObservationsRecorded(observations=items):
            offered = entry.data["observations"]
        case ReflectionsRecorded(reflections=items):
            offered = entry.data["reflections"]
        case _:
            return
    if isinstance(offered, list) and len(offered) != len(items):
        n_lost = len(offered) - len(items)
        raise Rejected("body", entry.id, "data", f"holds {n_lost} items that would be ignored")


def _is_strict(entry: Entry, role: Role) -> bool:
    """Say whether a fact is one also by the letter of its type, where reading is lenient."""
    fact = fact_of(entry)
    if isinstance(fact, SourcesLinked) and role == "importer":
        # It would let invalidations of this session reach entries of another that are no copies.
        named = (entry.tenant_id, entry.session_id)
        target = fact.target_session_id
        return all(each.copy_id == copy_id(*named, each.source_id, target) for each in fact.links)
    if fact is None or role == "importer":
        return fact is not None
    match fact:
        case SourcesInvalidated():
            assert isinstance(entry.data, dict)
            return bool(fact.ids) and read_as(SourcesInvalidated, entry.data) is not None
        case ScopeLeft(scope_id=left):
            return left is not UNSET
        case ScopeGranted(opening_entry_id=opening):
            return opening is not UNSET
        case _:
            return True


def _check_compaction(entry: Entry, role: Role) -> None:
    if role not in _WRITERS_OF_MEMORY:
        raise _forbidden(entry, "kind", "compaction", role)
    if compaction_of(entry) is None:
        raise Rejected("body", entry.id, "compaction", "has no summary or a malformed boundary")
    if _holds_folded(entry.data) and folded_of(entry) is None:
        raise Rejected("body", entry.id, "data.memory", "does not keep to its form")


def _holds_folded(data: JsonValue) -> bool:
    memory = data.get("memory") if isinstance(data, dict) else None
    return isinstance(memory, dict) and memory.get("type") == FOLDED


def _forbidden(entry: Entry, where: str, what: str, role: Role) -> Rejected:
    return Rejected("forbidden", entry.id, where, f"{what} is not for a {role} to append")
