"""Host facts and requests: the host's runs, flushes and compactions, and how requests end.

A request is answered once. A flush ends with ``completed`` or ``failed``, which the dropper alone
appends; a compaction request ends with the compaction that names it as its cause, with
``completed``, or with ``failed`` (design.md sections 3 and 5).
"""

from ombus_schemas.bodies import Body, Count, EntryId


class RunStarted(Body, tag="om.run.started", kw_only=True, frozen=True):
    """The host's agent is at work; no compaction until it ends."""

    run_id: str


class RunFinished(Body, tag="om.run.finished", kw_only=True, frozen=True):
    """The host's run ended. It also ends with the next start, or lapses by append time."""

    run_id: str


class FlushRequested(Body, tag="om.flush.requested", kw_only=True, frozen=True):
    """Cover, reflect and drop everything up to the anchor; the entry's id is the flush's id."""

    full_reflection_rebuild: bool = False
    """Reflect over every active observation, covered or not (S16)."""
    respect_thresholds: bool = False
    """The reference's flush: a stage below its threshold is passed over (design.md row 18)."""


class FlushCompleted(Body, tag="om.flush.completed", kw_only=True, frozen=True):
    """Every stage that had input ran; the counts say what was recorded."""

    flush_id: EntryId
    observations: Count
    reflections: Count
    dropped: Count


class FlushFailed(Body, tag="om.flush.failed", kw_only=True, frozen=True):
    """A stage gave up; the counts say what the stages before it persisted (design.md row 13)."""

    flush_id: EntryId
    reason: str
    """A stable code, as ``missing_model``, ``missing_credentials``, ``passive`` or ``error``."""
    worker: str | None = None
    """The stage that gave up."""
    detail: str | None = None
    """Redacted and cut; for people."""
    observations: Count = 0
    reflections: Count = 0
    dropped: Count = 0


class CompactRequested(Body, tag="om.compact.requested", kw_only=True, frozen=True):
    """Compact the leaf this hangs on, whatever its size; the entry's id is the request's id."""

    trigger: str | None = None
    """Why the host asks; kept in the compaction."""
    keep_recent_entries: Count | None = None
    """Instead of the settings' window, for this one."""


class CompactCompleted(Body, tag="om.compact.completed", kw_only=True, frozen=True):
    """The request was answered by a compaction, its own or a later one that covers it."""

    request_id: EntryId
    compaction_id: EntryId


class CompactFailed(Body, tag="om.compact.failed", kw_only=True, frozen=True):
    """The request was refused."""

    request_id: EntryId
    reason: str
    """A stable code, as ``nothing_folded``, ``no_progress`` or ``payload_too_large``."""
    detail: str | None = None
