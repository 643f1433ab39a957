"""The HTTP application: identify, admit, read, answer; one canonical log line a request.

The order is the security: nobody without a valid token learns anything (401, one text); with one,
whatever is absent and whatever is forbidden is ``not_found``, after the same work.
"""

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog
from ombus_schemas import api
from ombus_schemas.headers import trace_of
from ombus_schemas.ids import is_key_part, session_key
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.openapi import document
from ombus_schemas.route import Route
from ombus_schemas.routes import ROUTES
from ombus_streams.runtime.errors import NotServed
from ombus_streams.runtime.shared_reads import Asking
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Endpoint

from ombus.gateway import reads, scoping, steering
from ombus.gateway.answers import JSON, answered
from ombus.gateway.appending import Appending
from ombus.gateway.callers import Callers
from ombus.gateway.calls import Body, Call, Claim, claim_of, query_of
from ombus.gateway.children import NAMES as CHILDREN
from ombus.gateway.children import Leasing
from ombus.gateway.delegating import NAMES as DELEGATING
from ombus.gateway.delegating import Delegating
from ombus.gateway.endpoints import merged
from ombus.gateway.events import tail
from ombus.gateway.granting import NAMES as GRANTING
from ombus.gateway.granting import Granting
from ombus.gateway.hosting import FOLD_SECONDS, Host
from ombus.gateway.limits import Limits
from ombus.gateway.metrics import Metrics
from ombus.gateway.peers import PARTITIONS
from ombus.gateway.problems import ApiError, known, not_found, respond
from ombus.gateway.tailing import Hub
from ombus.gateway.tokens import Principal, Tokens
from ombus.operator.delegations import Delegations
from ombus.operator.sharing import ScopeSharing
from ombus.telemetry.exposition import MEDIA as PROMETHEUS
from ombus.wiring_grants import open_sharing

if TYPE_CHECKING:
    from ombus.gateway.routing import Router

_log = structlog.get_logger("ombus.gateway")


class Gateway:
    """What the routes share. ``is_open``: without any token, whoever reaches it may do all."""

    def __init__(
        self,
        host: Host,
        tokens: Tokens,
        limits: Limits,
        *,
        is_open: bool = False,
        instance: str | None = None,
        router: "Router | None" = None,
        delegations: Callable[[], Delegations] | None = None,
        sharing: Callable[[], ScopeSharing] | None = None,
    ) -> None:
        """``router``: other gateways share the log, and each session is one's to answer for.

        ``delegations`` and ``sharing`` open what is kept elsewhere, if not in the data folder.
        """
        self.host, self.tokens, self.limits = host, tokens, limits
        self.hub = Hub(host, limits)
        self.instance = instance or secrets.token_hex(4)
        self.router = router
        peers = None if router is None else router.peers
        self.callers = Callers(host.desk, tokens, limits, peers, may_be_open=is_open)
        identify = self.callers.identify
        self.delegating = Delegating(host.desk.settings, limits, identify, delegations)
        open_own = partial(open_sharing, host.desk)
        self.granting = Granting(host, self.instance, sharing or open_own, limits.threads)
        self.leasing = Leasing(host.desk.settings, limits, self.delegating)
        self.metrics = Metrics(host.engine.telemetry, host.engine.samples)
        self._tracer = host.engine.telemetry.tracer
        self._appending = Appending(host, limits, self.metrics)
        self._n_requests = 0

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Endpoint(route.path, self._endpoint(route), methods=[route.method]) for route in ROUTES
        ]
        routes += [
            Endpoint("/live", self._live),
            Endpoint("/ready", self._ready),
            Endpoint("/openapi.json", self._openapi),
            Endpoint("/metrics", self._metrics),
        ]
        return Starlette(
            routes=merged(routes),
            exception_handlers={HTTPException: self._no_route},
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.host.start()
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        await self.hub.close()
        await self.delegating.close()
        await self.granting.close()
        if self.router is not None:
            await self.router.close()
        await self.host.stop()
        self.tokens.close()

    def _endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            started, request_id = time.perf_counter(), secrets.token_hex(8)
            caller, response = "", None
            tracer, sent_by = self._tracer, None
            if tracer.is_on:
                sent_by = trace_of([(name.decode(), value) for name, value in request.headers.raw])
            try:
                if self._n_requests >= self.limits.max_requests:
                    raise ApiError("busy", "too many requests are under way", retry_after=1)
                self._n_requests += 1
                try:
                    claim, principal = self.callers.admitted(request)
                    caller = principal.id
                    # Only of callers that are known: others leave nothing but a count.
                    with tracer.serving(f"{route.method} {route.path}", sent_by):
                        response = await self._response(route, request, claim, principal)
                finally:
                    self._n_requests -= 1
            except Exception as error:
                refusal = known(error)
                if refusal is None:
                    _log.exception("request.failed", route=route.name, request_id=request_id)
                    refusal = ApiError("internal")
                response = respond(refusal, request_id)
            # Of what another gateway answered, the problem in the body names its own.
            request_id = response.headers.setdefault("X-Request-Id", request_id)
            response.headers.setdefault("Ombus-Answered-By", self.instance)
            response.headers["Ombus-Instance"] = self.instance
            seconds = time.perf_counter() - started
            self.metrics.answered(route.name, response.status_code, seconds)
            _log.info(
                "request.answered",
                route=route.name,
                status=response.status_code,
                duration_ms=round(seconds * 1_000, 2),
                principal=caller,
                request_id=request_id,
            )
            return response

        return endpoint

    async def _response(
        self, route: Route, request: Request, claim: Claim, principal: Principal
    ) -> Response:
        """Answer here, or let the owner of the session answer."""
        limits = self.limits
        body = Body(request, route, limits.max_body_bytes, limits.body_seconds)
        deadline = time.monotonic() + FOLD_SECONDS
        while True:
            response = await self._elsewhere(route, request, claim, principal, body)
            if response is not None:
                return response
            try:
                call = await self._call(route, request, claim, principal, body)
                return await self._answer(call, request)
            except NotServed:
                # The session moved meanwhile: a read may be asked of its new owner.
                is_late = time.monotonic() > deadline
                if route.method != "GET" or claim.vouched is not None or is_late:
                    raise

    async def _elsewhere(
        self, route: Route, request: Request, claim: Claim, principal: Principal, body: Body
    ) -> Response | None:
        """Return the answer of the gateway that owns the session; ``None``: this one does."""
        router, session = self.router, request.path_params.get("session", "")
        if router is None or not route.of_session or not is_key_part(session):
            return None
        key = session_key(principal.tenant, session)
        if claim.vouched is not None:
            router.check(key)
            return None
        is_read = route.method == "GET" and not route.streams
        owner = await router.owner(key, is_read=is_read)
        if owner is None:
            return None

        def may_go_on() -> bool:
            now = self.callers.identify(claim)
            return not self.hub.is_closed and now is not None and now.id == principal.id

        if not route.streams:
            return await router.passed_on(request, principal, key, await body.read(), owner)
        if self.hub.n_tails + router.n_relayed >= self.limits.max_tails:
            raise ApiError("busy", "too many tails are open", retry_after=5)
        return await router.passed_on(request, principal, key, b"", owner, may_go_on)

    async def _call(
        self, route: Route, request: Request, claim: Claim, principal: Principal, body: Body
    ) -> Call:
        key = await self._admitted(route, request, principal)
        return Call(
            route=route,
            principal=principal,
            key=key,
            path=request.path_params,
            query=query_of(route.params, request.query_params),
            body=await body.read(),
            claim=claim,
            last_event_id=request.headers.get("last-event-id"),
        )

    async def _admitted(self, route: Route, request: Request, principal: Principal) -> bytes:
        """Return the key of the session, if the caller may do this to it and it is there."""
        is_allowed = bool(route.roles & principal.roles)
        if not route.of_session:
            if not is_allowed:
                raise not_found()
            return b""
        session = request.path_params["session"]
        if not is_key_part(session):
            raise not_found()
        key = session_key(principal.tenant, session)
        is_allowed = is_allowed and principal.may_use(session)
        # Looked up also for those who may not: the answer takes as long.
        is_there = await self._is_there(key)
        if route.creates and is_allowed:
            return key
        if not (is_allowed and is_there):
            # What was appended a moment ago may not be folded.
            await self.host.caught_up(key)
            is_there = await self._is_there(key)
        if not (is_allowed and is_there):
            raise not_found()
        return key

    async def _is_there(self, key: bytes) -> bool:
        return await self.host.call(lambda: reads.is_there(self.host.desk, key))

    async def _answer(self, call: Call, request: Request) -> Response:
        match call.route.name:
            case "append":
                return answered(await self._appending.answer(call))
            case "tail":
                if self.hub.n_tails >= self.limits.max_tails:
                    raise ApiError("busy", "too many tails are open", retry_after=5)
                return await tail(self, call)
            case "sessions":
                return await self._sessions(call, request)
            case "flush":
                return answered(await steering.flush(self.host, call, self.limits))
            case "compact":
                return answered(await steering.compact(self.host, call, self.limits))
            case "run_started":
                return answered(await steering.run_fact(self.host, call, "om.run.started"))
            case "run_finished":
                return answered(await steering.run_fact(self.host, call, "om.run.finished"))
            case "invalidate":
                return answered(await steering.invalidate(self.host, call))
            case (
                "scope_open" | "scope_close" | "scope_enter" | "scope_leave" | "scope_bind"
                | "scope_unbind"
            ):  # fmt: skip
                return answered(await scoping.command(self.host, call))
            case name if name in DELEGATING:
                return await self.delegating.answer(call)
            case name if name in GRANTING:
                return answered(await self.granting.answer(call))
            case name if name in CHILDREN:
                return await self.leasing.answer(call)
            case _:
                return await self._read(call)

    async def _sessions(self, call: Call, request: Request) -> Response:
        router, limits = self.router, self.limits

        async def own() -> api.SessionsAnswer:
            return await self.host.call(lambda: reads.sessions(self.host.desk, call, limits))

        if router is None:
            return answered(await own())
        if call.claim.vouched is not None:
            served = router.served
            response = answered(await own())
            numbers = sorted(served & router.served)
            response.headers[PARTITIONS] = " ".join(map(str, numbers))
            return response
        limit = min(call.whole("limit") or reads.DEFAULT_PAGE, limits.max_page)
        return answered(await router.sessions(request, call.principal, own, limit))

    async def _read(self, call: Call) -> Response:
        at_least = call.text("atLeast")
        if at_least is not None:
            position = self.host.position_of(at_least, call.key)
            if await self.host.folded(position.partition) <= position.offset:
                end = await self.host.call(lambda: self.host.engine.log.end(position.partition))
            else:
                end = position.offset + 1
            if position.offset >= end:
                raise ApiError("bad_position", "it lies past the end of the log")
            asked = call.number("waitSeconds")
            seconds = FOLD_SECONDS if asked is None else asked
            await self.host.until_folded(position, min(seconds, self.limits.max_wait_seconds))
        desk, limits = self.host.desk, self.limits
        found = await self.host.call(lambda: reads.read(desk, call, limits))
        if isinstance(found, Asking):
            shared = await self.granting.resolved(found)
            found = await self.host.call(lambda: reads.read(desk, call, limits, shared))
            assert not isinstance(found, Asking)
        headers = {"Ombus-Position": found.position, "ETag": f'"{found.hash}"'}
        return Response(found.body, headers=headers, media_type=JSON)

    async def _live(self, request: Request) -> Response:
        return answered({"live": True})

    async def _ready(self, request: Request) -> Response:
        is_ready = self.host.is_ready and (self.router is None or self.router.has_joined)
        lag = await self.host.call(self.host.engine.lag) if is_ready else None
        said: JsonObject = {"ready": is_ready, "lag": lag, "instance": self.instance}
        if self.router is not None:
            said["partitions"] = [*sorted(self.router.served)]
        return answered(said, 200 if is_ready else 503)

    async def _openapi(self, request: Request) -> Response:
        return answered(document())

    async def _metrics(self, request: Request) -> Response:
        claim = claim_of(request)
        principal = self.callers.identify(claim)
        if principal is None or "operator" not in principal.roles:
            error = ApiError("unauthorized") if principal is None else not_found()
            return respond(error, secrets.token_hex(8))
        n_tails = self.hub.n_tails
        text = await self.host.call(lambda: self.metrics.text(n_tails))
        return Response(text, media_type=PROMETHEUS)

    async def _no_route(self, request: Request, error: Exception) -> Response:
        is_method = isinstance(error, HTTPException) and error.status_code == 405
        refusal = ApiError("method_not_allowed") if is_method else not_found()
        request_id = secrets.token_hex(8)
        response = respond(refusal, request_id)
        if isinstance(error, HTTPException) and is_method:
            response.headers.update(error.headers or {})  # Allow: what can be done here.
        return response
