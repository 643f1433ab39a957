"""What deciders ask for. An effect is a value; ``runtime.interpreter`` performs it.

``run_id`` is the hash of everything the run depends on, so that asking twice asks for the same run.
"""

import msgspec
from ombus_schemas.control import SourceLink
from ombus_schemas.settings import MemorySettings


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one worker over one leaf."""

    run_id: str
    tenant_id: str
    session_id: str
    segment: int
    base: str | None
    seen: str | None
    cause: str
    anchor_id: str
    """The chain entry the result will hang on."""
    scope_id: str | None = None
    """The work scope the result is bound to, when the view has any."""

    @property
    def worker(self) -> str:
        raise NotImplementedError


class RunObserver(Run, frozen=True, kw_only=True):
    """Observe the eligible entries up to the anchor. No source is left: record that, ask no one."""

    source_ids: tuple[str, ...]
    reason: str | None = None
    """Why sources are passed over: ``invalidated``, or ``refused`` by the provider for good."""

    @property
    def worker(self) -> str:
        return "observer"


class PrepareObserver(msgspec.Struct, frozen=True, kw_only=True):
    """Make an observer's run before it is owed, and hold its result (``memory.ahead``)."""

    run: RunObserver
    through_ordinal: int
    """Where the anchor lies: the next one begins after it."""
    tokens: int
    before: tuple[str, ...]
    """Runs prepared for what lies between the coverage and here: what they say is known."""
    settings: MemorySettings
    n_scopes: int

    @property
    def worker(self) -> str:
        return "observer"

    @property
    def segment(self) -> int:
        return self.run.segment


class RunReflector(Run, frozen=True, kw_only=True):
    """Reflect over these observations; ``through`` is the last observation record among them."""

    observation_ids: tuple[str, ...]
    through: str | None

    @property
    def worker(self) -> str:
        return "reflector"


class RunDropper(Run, frozen=True, kw_only=True):
    """Choose what to forget from these observations until they fit ``target_tokens``."""

    observation_ids: tuple[str, ...]
    target_tokens: int | float
    uses_model: bool

    @property
    def worker(self) -> str:
        return "dropper"


class RunCompactor(Run, frozen=True, kw_only=True):
    """Fold the visible memory into a compaction through ``through_id``. No model call."""

    through_id: str
    trigger: str

    @property
    def worker(self) -> str:
        return "compactor"


class RunFunnel(Run, frozen=True, kw_only=True):
    """Link these messages to the copies that a workspace is to get of them. No model call."""

    target_id: str
    links: tuple[SourceLink, ...]

    @property
    def worker(self) -> str:
        return "funnel"


class EndFlush(msgspec.Struct, frozen=True, kw_only=True):
    """Every stage of a flush has had its run: say so on the log."""

    tenant_id: str
    session_id: str
    segment: int
    flush_id: str
    n_observations: int
    n_reflections: int
    n_dropped: int
    failure: str | None = None
    """Why it failed: ``passive``, or what parked a worker. ``None``: it is complete."""

    @property
    def worker(self) -> str:
        return "dropper"


class RefuseCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A requested compaction that has nothing to do."""

    tenant_id: str
    session_id: str
    segment: int
    request_id: str
    reason: str
    """``nothing_folded``: no memory. ``no_progress``: the boundary would not move. ``passive``."""

    @property
    def worker(self) -> str:
        return "compactor"


Effect = (
    RunObserver
    | PrepareObserver
    | RunReflector
    | RunDropper
    | RunCompactor
    | RunFunnel
    | EndFlush
    | RefuseCompaction
)
