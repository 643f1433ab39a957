"""Functions of the host, named ``module:function`` in the process settings.

They are asked at the edge, never in a fold or a decision: what one says becomes a fact on the log
first. A function that raises, answers anything but a literal true, or takes too long has said no.
"""

import asyncio
import hashlib
import importlib
import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import structlog
from ombus_schemas.entries import SCHEMA_VERSION, Entry

from ombus_streams.memory.compact_when import CapUnknown, Measures
from ombus_streams.memory.session import Session
from ombus_streams.memory.terms import is_run_active, settings_of
from ombus_streams.runtime.errors import RuntimeFault, TerminalError

MAX_REMEMBERED: Final = 10_000
"""Sessions whose last question is remembered."""
TRIGGER: Final = "custom"

_log = structlog.get_logger("ombus.callbacks")


class NoSuchCallback(TerminalError):
    """A name that leads to no function."""

    def __init__(self, name: str, fact: str) -> None:
        super().__init__(f"callback {name} {fact}: name it as module:function")
        self.name = name


class StillAnswering(RuntimeFault):
    """A function of the host that has not come back from its last question."""

    def __init__(self, name: str) -> None:
        super().__init__(f"callback {name} is still at its last answer")
        self.name = name


class Function:
    """One function of the host; a plain one runs in a thread of its own."""

    def __init__(self, name: str) -> None:
        """Import the function.

        Raises:
            NoSuchCallback: the module cannot be imported, or holds no such function.
        """
        self.name = name
        self._function = _imported(name)
        self._executor: ThreadPoolExecutor | None = None
        self._stuck: Future[object] | None = None

    @property
    def is_stuck(self) -> bool:
        """Say whether it is still at its last answer."""
        return self._stuck is not None and not self._stuck.done()

    async def call(self, *arguments: object) -> object:
        """Return what the function answers.

        Raises:
            StillAnswering: its last answer is not there yet.
        """
        if self.is_stuck:
            raise StillAnswering(self.name)
        if inspect.iscoroutinefunction(self._function):
            return await self._function(*arguments)
        # A thread of its own: what hangs there holds up no other work, and is asked nothing more.
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="ombus-callback")
        self._stuck = self._executor.submit(self._function, *arguments)
        answer = await asyncio.wrap_future(self._stuck)
        return await answer if inspect.isawaitable(answer) else answer


class Callback:
    """One function of the host that says yes or no, asked under a time limit."""

    def __init__(self, name: str, seconds: float) -> None:
        """Import the function.

        Raises:
            NoSuchCallback: see ``Function``.
        """
        self._function, self._seconds = Function(name), seconds

    @property
    def name(self) -> str:
        return self._function.name

    async def ask(self, *arguments: object) -> bool:
        """Say whether the function answered a literal true in time. Never raises for its faults."""
        if self._function.is_stuck:
            _log.warning("callback.failed", name=self.name, failure="still at its last answer")
            return False
        try:
            return await asyncio.wait_for(self._function.call(*arguments), self._seconds) is True
        except Exception as error:  # a host's function may raise anything: that means no
            _log.warning("callback.failed", name=self.name, failure=type(error).__name__)
            return False


class CompactionWatch:
    """Asks ``shouldCompact`` about sessions that have grown, once for each place they are at."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._asked: dict[bytes, str] = {}

    async def request(self, session: Session, timestamp: str) -> Entry | None:
        """Return the request to append for the default leaf, or nothing.

        Its id derives from the leaf, so that two processes ask for one compaction.
        """
        segment = session.head.default_segment
        if not segment:
            return None
        leaf = session.leaf(segment)
        tip = leaf.tip_id
        settings = settings_of(session, leaf)
        has_memory = leaf.n_active or leaf.n_reflections
        if not has_memory or settings.passive or leaf.compact_requests:
            return None
        if is_run_active(session, leaf) or self._asked.get(session.key) == tip:
            return None
        self._asked[session.key] = tip
        while len(self._asked) > MAX_REMEMBERED:
            self._asked.pop(next(iter(self._asked)))
        measures = Measures(
            session.head.arrivals,
            lambda: leaf.chain_tokens,
            lambda: _cap(settings.context_window_tokens),
            session.session_id,
        )
        if not await self._callback.ask(measures):
            return None
        digest = hashlib.sha256(f"{session.key.decode()}\n{tip}".encode()).hexdigest()[:24]
        return Entry(
            id=f"compact.requested:{digest}",
            session_id=session.session_id,
            tenant_id=session.tenant_id,
            parent_id=tip,
            timestamp=timestamp,
            kind="custom",
            schema_version=SCHEMA_VERSION,
            data={"type": "om.compact.requested", "trigger": TRIGGER},
            side=True,
        )


def _imported(name: str) -> Callable[..., object]:
    module, _, path = name.partition(":")
    if not module or not path:
        raise NoSuchCallback(name, "is no name of a function")
    try:
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NoSuchCallback(name, f"is not there ({error})") from error
    if not callable(found):
        raise NoSuchCallback(name, "is no function")
    return found


def _cap(tokens: int | None) -> int:
    if tokens is None:
        raise CapUnknown("nobody says how large the model's window is: set contextWindowTokens")
    return tokens
