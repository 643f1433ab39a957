"""Spans: what the engines tell a tracer, whichever library it speaks; by default nobody listens.

A record carries the context of whoever appended it (W3C ``traceparent`` in its headers). What
happens to it later is no child of that: folds and runs come at any time after, often for many
appends at once, so they *link* to it. What is only caught up on is not traced at all: a replay
must not join traces of last year.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from ombus_schemas.headers import TraceContext

from ombus_streams.runtime.ports import Draft

Attributes = Mapping[str, str | int | float | bool]

MAX_LINKS: Final = 32
"""Appends one span links to: the newest."""


class Span(Protocol):
    """A span that is open."""

    def tell(self, attributes: Attributes) -> None: ...

    def fail(self, failure: str) -> None:
        """Mark it as failed; ``failure`` is a name, never a message."""
        ...


class Tracer(Protocol):
    """Makes spans. It never fails what it watches."""

    @property
    def is_on(self) -> bool:
        """Whether anybody listens: without, no header is looked at."""
        ...

    def appending(self, drafts: Sequence[Draft]) -> AbstractContextManager[Sequence[Draft]]:
        """Open the span of an append; lends the drafts with its context in their headers.

        A draft that brings a context keeps it, and one that is replayed gets none.
        """
        ...

    def folded(self, links: Sequence[TraceContext], began_ns: int, attributes: Attributes) -> None:
        """Leave the span of a batch that was begun at ``began_ns`` and is committed now."""
        ...

    def running(
        self, links: Sequence[TraceContext], name: str, attributes: Attributes
    ) -> AbstractContextManager[Span]:
        """Open the span of a run; what is done inside of it, appends included, is its child."""
        ...

    def serving(self, name: str, caller: TraceContext | None) -> AbstractContextManager[Span]:
        """Open the span of a request, a child of its caller's."""
        ...


class _NoSpan:
    def tell(self, attributes: Attributes) -> None:
        """Do nothing."""

    def fail(self, failure: str) -> None:
        """Do nothing."""


class Untraced:
    """The tracer nobody listens to."""

    is_on = False

    def appending(self, drafts: Sequence[Draft]) -> AbstractContextManager[Sequence[Draft]]:
        return nullcontext(drafts)

    def folded(self, links: Sequence[TraceContext], began_ns: int, attributes: Attributes) -> None:
        """Do nothing."""

    def running(
        self, links: Sequence[TraceContext], name: str, attributes: Attributes
    ) -> AbstractContextManager[Span]:
        return nullcontext(_NO_SPAN)

    def serving(self, name: str, caller: TraceContext | None) -> AbstractContextManager[Span]:
        return nullcontext(_NO_SPAN)


_NO_SPAN: Final = _NoSpan()
UNTRACED: Final = Untraced()
