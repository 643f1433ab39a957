"""What a parent does with its children: ask, wait, end, follow, sum up; and the tools of a model.

Nothing is kept here: every handle is a fact on the log, so another process, or this one after a
restart, waits for the same delegation by its id.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, Unpack

import msgspec
from ombus_schemas.delegating import (
    TOOLS,
    AliveRequest,
    CancelAnswer,
    CancelRequest,
    DelegateRequest,
    DelegationAnswer,
    GoneRequest,
    Milestone,
    ParentAnswer,
    SummaryAnswer,
    SupervisionTold,
    Tool,
    TreeAnswer,
    handle_arguments,
    spawn_arguments,
)
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.route import PREFIX
from ombus_schemas.supervision import Lifetime, Mode, OnLost, Report

from ombus.client.errors import OmbusError, Unavailable
from ombus.client.tail import told
from ombus.client.transport import Reply

if TYPE_CHECKING:
    from ombus.client.client import Client

WAIT_SECONDS: Final = 25.0
"""Of one request; waiting longer is asking again."""
LEASE_MS: Final = 15_000
BEATS: Final = 3
"""Signs of life in a lease."""

Answer = TypeVar("Answer", bound=msgspec.Struct)


class Options(TypedDict, total=False):
    """What may be said of a request. The host's settings only ever lower it."""

    id: str
    """The request's own: asked again with it, also after a restart, it is the same delegation."""
    thread_id: str
    lifetime: Lifetime
    report: Report
    every_turns: int
    when: tuple[str, ...]
    """Names of the child's events that are milestones as well."""
    budget_share: float
    limits: Mapping[str, int]
    on_lost: OnLost


class Delegations:
    """The children of one session."""

    def __init__(self, client: "Client", session_id: str) -> None:
        self._client, self.session_id = client, session_id

    async def delegate(
        self, child_id: str, input: str, **options: Unpack[Options]
    ) -> DelegationAnswer:
        """Ask a child and return the delegation once it is over; as ``delegate_async`` else."""
        asked = await self._ask("sync", child_id, input, options)
        return asked if asked.is_over else await self.wait(asked.delegation_id)

    async def delegate_async(
        self, child_id: str, input: str, **options: Unpack[Options]
    ) -> DelegationAnswer:
        """Ask a child and return the delegation as it stands.

        A refusal is no error: its state is ``rejected`` and its reason says why.

        Raises:
            BadRequest: an id or a limit that is none, or the id of another request.
        """
        return await self._ask("async", child_id, input, options)

    async def wait(self, delegation_id: str, seconds: float | None = None) -> DelegationAnswer:
        """Return a delegation once it is over, or as it stands after ``seconds``.

        Raises:
            NotFound: there is none.
        """
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        while True:
            left = WAIT_SECONDS if deadline is None else max(0.0, deadline - loop.time())
            query = {"waitSeconds": str(min(left, WAIT_SECONDS))}
            found = await self._get(f"delegations/{delegation_id}", query, DelegationAnswer)
            if found.is_over or (deadline is not None and loop.time() >= deadline):
                return found

    async def cancel(self, delegation_id: str, reason: str = "cancelled") -> bool:
        """End a delegation; say whether this did, ``False`` if it was over already.

        Raises:
            NotFound: there is none.
        """
        path = f"delegations/{delegation_id}/cancel"
        answer = await self._post(path, CancelRequest(reason=reason), CancelAnswer)
        return answer.status == "cancelling"

    async def summary(self) -> SummaryAnswer:
        """Return attempts, retries, failures and outcome of each child."""
        return await self._get("delegations/summary", {}, SummaryAnswer)

    async def tree(self) -> TreeAnswer:
        """Return every delegation below the session."""
        return await self._get("delegations", {}, TreeAnswer)

    async def subscribe(
        self, after: str | None = None, delegation_id: str | None = None
    ) -> AsyncIterator[SupervisionTold]:
        """Yield what is told of the children from ``after`` on (``start``, a position; now).

        A connection that breaks is opened again behind the last event. Of one delegation it ends
        after its end; else when the caller stops.
        """
        last, pause = after, 0.05
        while True:
            query = {} if last is None else {"after": last}
            if delegation_id is not None:
                query["delegation"] = delegation_id
            path = self._path("delegations/events")
            try:
                async with self._client.transport.stream(path, query, {}) as stream:
                    if stream.status != 200:
                        reply = Reply(status=stream.status, headers={}, body=stream.body)
                        raise self._client.error_of(reply)
                    async for position, data in told(stream.lines()):
                        pause, last = 0.05, position
                        yield msgspec.json.decode(data, type=SupervisionTold)
                if delegation_id is not None and (await self.wait(delegation_id, 0)).is_over:
                    return
            except Unavailable:
                pause = min(2 * pause, 5.0)
            await self._client.pause(pause)

    async def alive(self, lease_ms: int = LEASE_MS, holder: str = "") -> None:
        """Say that the parent is alive; without another one in time its task children end."""
        await self._post("alive", AliveRequest(holder=holder, lease_ms=lease_ms), ParentAnswer)

    async def gone(self, reason: str = "parent_gone") -> None:
        """Say that the parent's run is over: its task children end."""
        await self._post("gone", GoneRequest(reason=reason), ParentAnswer)

    @asynccontextmanager
    async def attending(self, lease_ms: int = LEASE_MS, holder: str = "") -> AsyncIterator[None]:
        """Be alive as long as the block runs; killed in it, the task children end by the lease.

        Leaving it ends them as well: ask for what is to outlive it with lifetime ``session``.
        """
        await self.alive(lease_ms, holder)

        async def beat() -> None:
            while True:
                await asyncio.sleep(lease_ms / BEATS / 1_000)
                with suppress(OmbusError):  # The next one may get through.
                    await self.alive(lease_ms, holder)

        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await self.gone()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools a model delegates with."""
        return TOOLS

    async def call_tool(
        self, name: str, arguments: JsonObject, *, wait_seconds: float = WAIT_SECONDS
    ) -> JsonObject:
        """Return what a tool of ``tools`` answers; bad arguments and refusals are values."""
        try:
            match name:
                case "spawn_agent":
                    return await self._spawn(arguments, wait_seconds)
                case "wait_agent":
                    asked = handle_arguments(arguments)
                    return _shown(await self.wait(asked.delegation_id, wait_seconds))
                case "cancel_agent":
                    id = handle_arguments(arguments).delegation_id
                    done = await self.cancel(id)
                    status = "cancelling" if done else "terminal"
                    return {"delegationId": id, "status": status}
                case _:
                    return _refused(f"there is no tool {name}")
        except ValueError as error:
            return _refused(str(error))
        except OmbusError as error:
            return _refused(str(error))

    async def _ask(
        self, mode: Mode, child_id: str, input: str, options: Options
    ) -> DelegationAnswer:
        request = DelegateRequest(
            child_id=child_id,
            input=input,
            id=options.get("id") or f"ask:{uuid.uuid4().hex}",
            mode=mode,
            thread_id=options.get("thread_id"),
            lifetime=options.get("lifetime", "task"),
            report=options.get("report", "on-complete"),
            milestone=Milestone(
                every_turns=options.get("every_turns"), when=options.get("when", ())
            ),
            budget_share=options.get("budget_share"),
            limits=dict(options.get("limits") or {}),
            on_lost=options.get("on_lost", "takeover"),
            wait_seconds=0,
        )
        return await self._post("delegations", request, DelegationAnswer)

    async def _spawn(self, arguments: JsonObject, wait_seconds: float) -> JsonObject:
        request = spawn_arguments(arguments).request(f"ask:{uuid.uuid4().hex}", 0)
        found = await self._post("delegations", request, DelegationAnswer)
        if request.mode == "sync":
            found = await self.wait(found.delegation_id, wait_seconds)
        return _shown(found)

    async def _get(self, name: str, query: Mapping[str, str], kind: type[Answer]) -> Answer:
        reply = await self._client.call("GET", self._path(name), query, None)
        return msgspec.json.decode(reply.body, type=kind)

    async def _post(self, name: str, body: msgspec.Struct, kind: type[Answer]) -> Answer:
        raw = msgspec.json.encode(body)
        reply = await self._client.call("POST", self._path(name), {}, raw)
        return msgspec.json.decode(reply.body, type=kind)

    def _path(self, name: str) -> str:
        return f"{PREFIX}/sessions/{self.session_id}/{name}"


def _shown(answer: DelegationAnswer) -> JsonObject:
    """Return what a model is shown of a delegation."""
    shown: JsonObject = {
        "delegationId": answer.delegation_id,
        "childId": answer.child_id,
        "status": answer.status,
    }
    if answer.output is not None:
        shown["output"] = answer.output
    if answer.reason is not None:
        shown["reason"] = answer.reason
    return shown


def _refused(fact: str) -> JsonObject:
    return {"error": {"message": fact}}
