"""Errors of operating a data folder.

* OperatorError         names the thing, the fact and the way out; ``code`` is stable
  * Misaddressed          the caller named something that is not there
    x NoData                the folder holds no log
    x NoSession             no session, or none of that name
    x ManySessions          there are several and none was named
    x NoLeaf                no entry of the session to be a leaf
    x NoDelegation          no delegation of that id, or nobody has folded its request yet
    x BadDelegation         an id, a child or a limit that is none
      x OtherRequest          the id of an earlier request that asked for something else
    x BadPosition           no position, or one of another partition or past the end
    x PositionGone          a position of another log: 410
  * Unanswered            whoever folds made no progress for too long; the request stands
  * Busy                  somebody else folds the folder, and this needs to
"""

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar, Final

from ombus.tables import perhaps

STOP_IT: Final = "stop that one first"


class OperatorError(Exception):
    """A command that could not be carried out."""

    code: ClassVar[str] = "operator"


class Misaddressed(OperatorError):
    """The caller named something that is not there."""


class NoData(Misaddressed):
    """Nothing was ever appended under ``folder``."""

    code = "no_data"

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} holds no log: import something first, or name another --data")
        self.folder = folder


class NoSession(Misaddressed):
    """The log has no session, or none of that name."""

    code = "no_session"

    def __init__(self, name: str | None, known: Collection[str] = ()) -> None:
        what = "there is no session yet" if name is None else f"no session {name}"
        way_out = "import something first"
        if name is not None:
            way_out = f"{perhaps(name, known)}`ombus sessions` lists them"
        super().__init__(f"{what}: {way_out}")
        self.name = name


class ManySessions(Misaddressed):
    """A session must be named when there are several."""

    code = "many_sessions"

    def __init__(self, names: tuple[str, ...]) -> None:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        super().__init__(
            f"there are {len(names):,} sessions ({shown}): name one with --session; "
            "`ombus sessions` lists them"
        )
        self.names = names


class NoLeaf(Misaddressed):
    """No entry of the session's tree has this id, or the session has no entry at all."""

    code = "no_leaf"

    def __init__(self, session: str, leaf_id: str | None) -> None:
        what = "no entry that can be a leaf" if leaf_id is None else f"no chain entry {leaf_id}"
        super().__init__(f"session {session} has {what}: name an entry that `ombus tail` shows")
        self.session, self.leaf_id = session, leaf_id


class NoDelegation(Misaddressed):
    """The session has no such delegation; what is unknown and what is not yours are one answer."""

    code = "no_delegation"

    def __init__(self, delegation: str) -> None:
        super().__init__(f"no delegation {delegation}: `ombus tree SESSION` lists them")
        self.delegation = delegation


class BadDelegation(Misaddressed):
    """A request that nobody could check."""

    code = "bad_delegation"


class OtherRequest(BadDelegation):
    """The session has another request of this id."""

    def __init__(self) -> None:
        super().__init__("the session has another request of this id")


class BadPosition(Misaddressed):
    """What was given is no position of the session's partition."""

    code = "bad_position"

    def __init__(self, position: str, fact: str) -> None:
        super().__init__(f"position {position} {fact}: give one that a read or an append printed")
        self.position = position


class PositionGone(Misaddressed):
    """The position belongs to another log than this one."""

    code = "410"

    def __init__(self, position: str, incarnation: str) -> None:
        super().__init__(
            f"position {position} belongs to another log, this one is {incarnation}: "
            "read without --as-of for a position of this log"
        )
        self.position, self.incarnation = position, incarnation


class Unanswered(OperatorError):
    """Nothing moved for ``seconds``."""

    code = "unanswered"

    def __init__(self, waited_for: str, seconds: float) -> None:
        super().__init__(
            f"{waited_for} has not happened, and nothing moved for {seconds:g} s: look at the log "
            "of `ombus up`, or raise --wait-seconds; what was appended stands"
        )
        self.waited_for, self.seconds = waited_for, seconds


class Busy(OperatorError):
    """Another process owns the folder."""

    code = "busy"

    def __init__(self, what: str, folder: Path, owner: str, way_out: str = STOP_IT) -> None:
        super().__init__(
            f"{what} needs {folder} for itself, process {owner or 'unknown'} folds it: {way_out}"
        )
        self.folder, self.owner = folder, owner
