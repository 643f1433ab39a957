"""Work scopes of a session on the bus: judged against the folded leaf, appended, read back (S18).

A command appends at most one side record. What it says holds once that is folded: of two commands
at once the first on the log wins, and the other is told so.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec
from ombus_schemas.ids import WORKER_ID_PREFIX, is_entry_id, observation_ref, reflection_ref
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import Observation, Reflection
from ombus_schemas.redaction import redact_text
from ombus_schemas.scope_api import OutlineRow, ScopeAnswer, ScopeMemoryAnswer, ScopeRow
from ombus_streams.memory import scope_controller as controller
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.items import (
    ACTIVE,
    name_of,
    observation_row,
    observations,
    reflection_row,
    reflections,
)
from ombus_streams.memory.ledger import Ledger
from ombus_streams.memory.reading import bound_scopes
from ombus_streams.memory.scope_controller import ScopeLimitExceeded, ScopeRefused
from ombus_streams.memory.scope_projection import Closed, project_scopes
from ombus_streams.memory.scopes import MAX_BINDS, MAX_SCOPES, ScopeMap, strings_of
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import is_scope_record_folded, scope_map_of
from ombus_streams.runtime.ports import Position

from ombus.operator.control import control_entry, open_session
from ombus.operator.desk import Desk
from ombus.operator.errors import Misaddressed, NoLeaf
from ombus.operator.lookup import Lens, leaf_of, looking

CommandName = Literal["open", "close", "enter", "leave", "bind", "unbind"]
WARN_AT: Final = 0.9
"""The part of a cap from which on it is reported."""


class BadScope(Misaddressed):
    """An argument of a command on scopes is none."""

    code = "bad_scope"


class ScopeIdTaken(BadScope):
    """The id of the command is that of another entry."""


class ScopeFull(Misaddressed):
    """A command would pass a cap."""

    code = "scope_limit"


class ScopeOvertaken(Misaddressed):
    """Another command came first on the log and this one changed nothing."""

    code = "scope_refused"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"another command came before this {name}: look at `ombus scope list`, then try again"
        )


class NotAllowed(Misaddressed):
    """The scopes of a session do not allow a command; it was judged and nothing appended."""

    code = "scope_refused"

    def __init__(self, session: str, cause: ScopeRefused) -> None:
        super().__init__(f"session {session}: {cause}; `ombus scope list` shows its scopes")
        self.session = session


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants of the scopes of a leaf."""

    name: CommandName
    scope: JsonValue = None
    """The id; of ``open`` the object with id, parent, kind and label; of ``leave`` ``None`` goes
    back whatever is on top."""
    refs: JsonValue = None
    entry_id: str | None = None
    """An id for the record: the same one again asks for the same thing, once."""


class Asked(msgspec.Struct, frozen=True):
    """A command that was judged; its record, if there was anything to say, is on the log."""

    command: Command
    leaf_id: str | None
    """The leaf that was named."""
    leaf: str
    entry_id: str | None
    position: Position | None
    """``None``: nothing was appended now."""


def ask(desk: Desk, key: bytes, command: Command, leaf_id: str | None = None) -> Asked:
    """Append the record of the command, unless it says nothing new. What there is must be folded.

    Raises:
        BadScope, ScopeFull, ScopeRefused: it was judged and nothing appended.
        NoLeaf: the session has none, or not this one.
    """
    wanted = command.entry_id
    if wanted is not None and (not is_entry_id(wanted) or wanted.startswith(WORKER_ID_PREFIX)):
        raise BadScope(f"{wanted!r} is no entry id: 1 to 200 printable characters, no blank")
    with looking(desk, key, leaf_id) as lens:
        tip = lens.leaf.tip_id
        known = None if wanted is None else lens.session.entry(wanted)
        if known is not None:
            if known.data_type != f"om.scope.{_PARTICIPLE[command.name]}":
                raise ScopeIdTaken(f"the session has another entry with the id {wanted}")
            return Asked(command, leaf_id, tip, wanted, None)
        record = _judged(lens.session, lens.leaf, command, desk.settings.secrets)
    if record is None:
        return Asked(command, leaf_id, tip, None, None)
    if open_session(desk, key, leaf_id) is None:
        raise NoLeaf(key.decode(), leaf_id)
    entry = control_entry(desk, key, tip, record)
    entry = msgspec.structs.replace(entry, id=wanted or f"scope:{uuid.uuid4().hex}")
    (position,) = desk.append([entry])
    return Asked(command, leaf_id, tip, entry.id, position)


def answer(desk: Desk, key: bytes, asked: Asked) -> ScopeAnswer:
    """Return what the command came to, once its record is folded.

    Raises:
        ScopeOvertaken: it changed nothing, because another one came first.
    """
    entry_id = asked.entry_id
    with looking(desk, key, asked.leaf_id) as lens:
        session, leaf = lens.session, lens.leaf
        if entry_id is not None and not is_scope_record_folded(session, leaf, entry_id):
            # Another branch may be the default leaf by now; ours is the one that was asked about.
            leaf = leaf_of(session, asked.leaf)
            if not is_scope_record_folded(session, leaf, entry_id):
                raise ScopeOvertaken(asked.command.name)
        scope_map = scope_map_of(session, leaf)
        return ScopeAnswer(
            session=session.session_id,
            leaf=leaf.tip_id,
            current=scope_map.leaf,
            id=entry_id,
            position=None if asked.position is None else str(asked.position),
            warnings=(
                *warnings_of(scope_map),
                *(_unbound(session, leaf) if asked.command.name == "open" else ()),
            ),
        )


def command(desk: Desk, key: bytes, said: Command, leaf_id: str | None = None) -> ScopeAnswer:
    """Carry a command out and wait until it holds.

    Raises: as ``ask`` and ``answer``. Unanswered: whoever folds did not get on.
    """
    partition = desk.engine.log.partition_of(key)
    desk.catch_up([partition])
    asked = ask(desk, key, said, leaf_id)
    desk.catch_up([partition])
    return answer(desk, key, asked)


def rows_of(lens: Lens) -> tuple[ScopeRow, ...]:
    """Return the scopes of a leaf, the root first."""
    scope_map = bound_scopes(lens.session, lens.leaf)
    return tuple(
        ScopeRow(
            id=scope.id,
            parent_id=scope.parent_id,
            kind=scope.kind,
            label=scope.label,
            status=scope.status,
            bound=len(scope_map.refs_by_scope_id.get(scope.id, ())),
        )
        for scope in scope_map.scopes.values()
    )


def stack_of(lens: Lens) -> tuple[str, ...]:
    """Return the scopes from the root to where the work stands."""
    return scope_map_of(lens.session, lens.leaf).stack


def memory_of(
    lens: Lens,
    from_id: str | None = None,
    include: str = "self+ancestors",
    closed: Closed = "hide",
    kinds: tuple[str, ...] = (),
    secrets: tuple[str, ...] = (),
) -> ScopeMemoryAnswer:
    """Return the active memory that is visible from a scope, with position and hash left empty."""
    session, leaf = lens.session, lens.leaf
    ledger = Ledger(
        observations=tuple(row.item for row in observations(session, leaf, *ACTIVE)),
        reflections=tuple(row.item for row in reflections(session, leaf, "visible")),
    )
    scope_map = bound_scopes(session, leaf)
    from_id = scope_map.leaf if from_id is None else from_id
    shown = project_scopes(ledger, scope_map, from_id, include, closed, kinds)
    return ScopeMemoryAnswer(
        session=session.session_id,
        leaf=leaf.tip_id,
        position="",
        hash="",
        from_id=from_id,
        include=include,
        observations=tuple(_shown(each, secrets) for each in shown.observations),
        reflections=tuple(_shown(each, secrets) for each in shown.reflections),
        outline=tuple(OutlineRow(id=line.id, label=line.label) for line in shown.outline),
    )


def warnings_of(scope_map: ScopeMap) -> tuple[str, ...]:
    """Return which caps are nearly reached: at 90 % of them, before anything is refused.

    What records bind by themselves counts towards none: they are bound whatever there is.
    """
    found: list[str] = []
    n_scopes = len(scope_map.scopes) - 1
    if n_scopes >= WARN_AT * MAX_SCOPES:
        found.append(f"{n_scopes} of {MAX_SCOPES} scopes are used: a session can open no more")
    for scope_id, refs in scope_map.refs_by_scope_id.items():
        if len(refs) >= WARN_AT * MAX_BINDS:
            fact = f"{len(refs):,} of {MAX_BINDS:,} references are bound"
            found.append(f"scope {scope_id}: {fact}: unbind some, or open another scope")
    return tuple(found)


def warnings_of_leaf(lens: Lens) -> tuple[str, ...]:
    """Return ``warnings_of`` the scopes of a leaf, and that memory is in none of them."""
    session, leaf = lens.session, lens.leaf
    return (*warnings_of(scope_map_of(session, leaf)), *_unbound(session, leaf))


_PARTICIPLE: Final[dict[CommandName, str]] = {
    "open": "opened",
    "close": "closed",
    "enter": "entered",
    "leave": "left",
    "bind": "bound",
    "unbind": "unbound",
}


def _unbound(session: Session, leaf: LeafHead) -> tuple[str, ...]:
    """Return that memory is out of sight because it is bound to no scope, if it is."""
    if not leaf.n_scopes:
        return ()
    held = bound_scopes(session, leaf).refs_by_scope_id.values()
    bound = {ref for refs in held for ref in refs}
    n_unbound = sum(
        observation_ref(row.item.id) not in bound for row in observations(session, leaf, *ACTIVE)
    ) + sum(
        reflection_ref(row.item.id) not in bound for row in reflections(session, leaf, "visible")
    )
    if not n_unbound:
        return ()
    return (
        f"{n_unbound:,} memories are bound to no scope, so no context shows them: bind them, to "
        "`session` if to none else; recall finds them all the same",
    )


def _shown(item: Observation | Reflection, secrets: tuple[str, ...]) -> JsonObject:
    return {"id": item.id, "content": redact_text(item.content, secrets)}


def _judged(
    session: Session, leaf: LeafHead, command: Command, secrets: tuple[str, ...]
) -> JsonObject | None:
    try:
        return _record(session, leaf, command, secrets)
    except TypeError as error:
        raise BadScope(str(error)) from error
    except ScopeLimitExceeded as error:
        raise ScopeFull(str(error)) from error


def _record(
    session: Session, leaf: LeafHead, command: Command, secrets: tuple[str, ...]
) -> JsonObject | None:
    scope_map, scope = scope_map_of(session, leaf), command.scope
    match command.name:
        case "open":
            return controller.open_scope(scope_map, scope, secrets)
        case "close":
            return controller.close_scope(scope_map, scope)
        case "enter":
            return controller.enter_scope(scope_map, scope)
        case "leave":
            return _left(scope_map, scope)
        case "bind":
            return _with_refs(session, leaf, command, controller.bind)
        case "unbind":
            return _with_refs(session, leaf, command, controller.unbind)


def _left(scope_map: ScopeMap, scope: JsonValue) -> JsonObject | None:
    """Return the record that leaves the scope on top, by its name: it may not be there any more."""
    record = controller.leave_scope(scope_map)
    if record is None or scope not in (None, scope_map.leaf):
        return None
    return {**record, "scopeId": scope_map.leaf}


def _with_refs(
    session: Session,
    leaf: LeafHead,
    command: Command,
    judge: Callable[[ScopeMap, Ledger, JsonValue, JsonValue, frozenset[str]], JsonObject | None],
) -> JsonObject | None:
    scope_map = scope_map_of(session, leaf)
    scope = command.scope if isinstance(command.scope, str) else ""
    bound = frozenset(bound_scopes(session, leaf).refs_by_scope_id.get(scope, ()))
    own = bound - frozenset(scope_map.refs_by_scope_id.get(scope, ()))
    named = _named(session, leaf, strings_of(command.refs) or ())
    return judge(scope_map, named, command.scope, command.refs, own)


def _named(session: Session, leaf: LeafHead, refs: Sequence[str]) -> Ledger:
    """Return what is recorded on the leaf of ``refs``, whatever became of it since."""
    kept_observations, kept_reflections = list[Observation](), list[Reflection]()
    for ref in refs:
        kind, _, memory_id = ref.partition(":")
        name = name_of(session, leaf, memory_id)
        observed = observation_row(session, leaf, name) if kind == "om" else None
        reflected = reflection_row(session, leaf, name) if kind == "reflection" else None
        if observed is not None:
            kept_observations.append(observed.item)
        if reflected is not None:
            kept_reflections.append(reflected.item)
    return Ledger(observations=tuple(kept_observations), reflections=tuple(kept_reflections))
