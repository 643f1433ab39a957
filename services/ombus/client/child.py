"""Children in Python: a function that is given one delegation at a time, under a lease.

``serve_children`` (``ombus.client.children``) claims what is delegated to a child id, keeps the
lease while the function works, and says how it ended. The function publishes its transcript with
``ChildTask.publish``; what a parent hears of it follows from that transcript alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
from ombus_schemas.child_api import Offer, Standing
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.supervision import DELEGATION_KEY, Delegation, Permission


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The child's work is done."""

    output: str | None = None
    """For the parent; redacted and cut when it is appended."""
    status: str = "completed"
    total_tokens: int = 0


class ChildFailure(Exception):
    """The child's work failed; raise it to say why in words of your own."""

    def __init__(
        self,
        error: str,
        *,
        reason: str = "error",
        limit: str | None = None,
        stop_reason: str | None = None,
        exit_code: int | None = None,
        total_tokens: int = 0,
    ) -> None:
        super().__init__(error)
        self.error, self.reason, self.limit = error, reason, limit
        self.stop_reason, self.exit_code = stop_reason, exit_code
        self.total_tokens = total_tokens


class ChildBus(Protocol):
    """How a child reaches its delegations. Every call may be made again.

    Raises one of ``unreachable`` where nothing else is said: nothing, or all of it, was done.
    """

    @property
    def unreachable(self) -> tuple[type[Exception], ...]:
        """Errors after which the same call may work later."""
        ...

    @property
    def pause(self) -> float:
        """Seconds between two looks at a standing."""
        ...

    async def offers(self, child_id: str) -> Sequence[Offer]:
        """Return what can be claimed now, oldest first; waits a little when there is nothing."""
        ...

    async def claim(self, offer: Offer, holder: str, lease_ms: int) -> bool:
        """Return whether this holder got ``offer.epoch``."""
        ...

    async def beat(self, offer: Offer, holder: str, n: int) -> Standing:
        """Keep the lease and return the standing."""
        ...

    async def standing(self, offer: Offer, holder: str) -> Standing:
        """Return the standing, without keeping the lease."""
        ...

    async def publish(self, offer: Offer, entries: Sequence[JsonObject]) -> None:
        """Append entries to the child's session; their ids make a repeat harmless.

        Raises:
            ChildFailure: an entry is refused for good.
        """
        ...

    async def finish(self, offer: Offer, holder: str, done: Done) -> Standing:
        """Say that the child is done; return how the delegation ended."""
        ...

    async def fail(self, offer: Offer, holder: str, failure: ChildFailure) -> Standing:
        """Say that the child failed; return how the delegation ended."""
        ...


class ChildTask:
    """One delegation under this process's lease: what a function of a child is given."""

    def __init__(self, bus: ChildBus, offer: Offer) -> None:
        self.offer = offer
        self.total_tokens = 0
        """As the published messages say (``metadata.usage.totalTokens``)."""
        self.last_text: str | None = None
        """What the assistant said last."""
        self._bus = bus
        self._tip: str | None = None
        self._n_entries = self._n_steps = self._n_calls = 0
        self._is_speaking = self._says_turns = False
        self._publishing = asyncio.Lock()

    @property
    def input(self) -> str:
        return self.offer.input

    @property
    def session_id(self) -> str:
        """The child's own session; give it as the parent of what the child delegates itself."""
        return self.offer.child_session_id

    async def open(self) -> None:
        """Publish the first entry: the input, and who asked."""
        offer = self.offer
        said = Delegation(
            parent_session_id=offer.parent,
            delegation_id=offer.delegation_id,
            child_id=offer.child_id,
            policy=offer.policy,
            depth=offer.depth,
            limits=offer.limits,
        )
        entry: JsonObject = {
            "id": f"{offer.delegation_id}.input",
            "parentId": None,
            "kind": "message",
            "message": {"role": "user", "content": [{"type": "text", "text": offer.input}]},
            "metadata": {DELEGATION_KEY: msgspec.to_builtins(said)},
            "origin": "other_session",
        }
        await again(self._bus, lambda: self._bus.publish(offer, [entry]))
        self._tip = f"{offer.delegation_id}.input"

    async def publish(self, *entries: JsonObject) -> None:
        """Append messages (``role`` and ``content``), events of the agent, or entries, in order.

        Raises:
            ChildFailure: a limit is passed or a tool is not permitted; what led there is kept.
        """
        async with self._publishing:
            placed: list[JsonObject] = []
            broken: ChildFailure | None = None
            for said in entries:
                entry = self._placed(said)
                placed.append(entry)
                broken = self._counted(entry)
                if broken is not None:
                    break
            if placed:
                await again(self._bus, lambda: self._bus.publish(self.offer, placed))
            if broken is not None:
                raise broken

    async def event(self, name: str, **members: JsonValue) -> None:
        """Publish an event of the agent, as ``turn_started`` or ``agent_suspended``."""
        await self.publish({"kind": "event", "event": {"type": name, **members}})

    def _placed(self, said: JsonObject) -> JsonObject:
        """Return an entry with its id and parent; those of a later attempt are its own."""
        offer = self.offer
        if "kind" not in said and "role" in said:
            around = {key: said[key] for key in said if key in _AROUND}
            message = {key: said[key] for key in said if key not in _AROUND}
            said = {**around, "kind": "message", "message": message}
        self._n_entries += 1
        named = said.get("id")
        if not isinstance(named, str):
            entry_id = f"{offer.delegation_id}.{offer.epoch}.{self._n_entries}"
        else:
            entry_id = self._own(named)
        parent = said.get("parentId")
        parent_id = self._own(parent) if isinstance(parent, str) else self._tip
        if not said.get("side"):
            self._tip = entry_id
        return {**said, "id": entry_id, "parentId": parent_id}

    def _own(self, entry_id: str) -> str:
        return entry_id if self.offer.epoch == 1 else f"{entry_id}~{self.offer.epoch}"

    def _counted(self, entry: JsonObject) -> ChildFailure | None:
        """Count what an entry uses, and return the failure it is if that is too much."""
        limits = self.offer.limits
        event = entry.get("event")
        if isinstance(event, dict) and event.get("type") == "turn_started":
            self._says_turns = True
            return self._stepped()
        message = entry.get("message")
        if not isinstance(message, dict):
            return None
        self.total_tokens += _tokens(entry) or _tokens(message)
        if self.total_tokens > limits.get("tokens", self.total_tokens):
            return _over("tokens", self.total_tokens, limits)
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        # A step is what the assistant says at a stretch, unless turns are told.
        goes_on, self._is_speaking = self._is_speaking, message.get("role") == "assistant"
        if self._is_speaking:
            texts = [content] if isinstance(content, str) else [_text(block) for block in blocks]
            self.last_text = "\n".join(text for text in texts if text) or self.last_text
            broken = None if goes_on or self._says_turns else self._stepped()
            if broken is not None:
                return broken
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "tool_call":
                self._n_calls += 1
                if self._n_calls > limits.get("toolCalls", self._n_calls):
                    return _over("toolCalls", self._n_calls, limits)
                tool = str(block.get("name"))
                if not all(_permits(each, tool) for each in self.offer.permissions):
                    return ChildFailure(f"tool {tool} is not permitted", reason="tool_denied")
        return None

    def _stepped(self) -> ChildFailure | None:
        self._n_steps += 1
        if self._n_steps > self.offer.limits.get("steps", self._n_steps):
            return _over("steps", self._n_steps, self.offer.limits)
        return None


__all__ = [
    "ChildBus",
    "ChildFailure",
    "ChildTask",
    "Done",
    "Offer",
    "Standing",
    "Work",
    "again",
]

Work = Callable[[ChildTask], Awaitable[Done | str | None]]
"""What a child does. A text is its output; nothing: what the assistant said last is."""

RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 2.0

Result = TypeVar("Result")


async def again(bus: ChildBus, call: Callable[[], Awaitable[Result]]) -> Result:
    """Return what ``call`` does, tried again while the bus is not reached, until cancelled."""
    pause = RETRY_S
    while True:
        try:
            return await call()
        except bus.unreachable:
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_S)


_AROUND: Final = frozenset({"id", "parentId", "timestamp", "runId", "metadata", "origin"})


def _tokens(holder: JsonObject) -> int:
    metadata = holder.get("metadata")
    usage = metadata.get("usage") if isinstance(metadata, dict) else None
    total = usage.get("totalTokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) and total > 0 else 0


def _text(block: JsonValue) -> str:
    if isinstance(block, dict) and block.get("type") == "text":
        return str(block.get("text"))
    return block if isinstance(block, str) else ""


def _over(limit: str, actual: int, limits: dict[str, int]) -> ChildFailure:
    fact = f"{limit} is {actual:,}, the limit is {limits[limit]:,}"
    return ChildFailure(fact, reason="limit", limit=limit)


def _permits(permission: Permission, tool: str) -> bool:
    is_allowed = permission.allow is None or tool in permission.allow
    return is_allowed and tool not in permission.deny
