"""Who calls a gateway, and whether they call too often."""

from typing import TYPE_CHECKING, get_args

from ombus_schemas.api import ApiRole
from starlette.requests import Request

from ombus.gateway.addresses import is_loopback, is_ours
from ombus.gateway.calls import Claim, claim_of
from ombus.gateway.limits import Limits, Rate
from ombus.gateway.problems import ApiError
from ombus.gateway.tokens import OPEN, Principal, Tokens
from ombus.operator.desk import Desk

if TYPE_CHECKING:
    from ombus.gateway.peers import Peers


class Callers:
    """See the module. ``may_be_open``: without any token, whoever reaches it may do all."""

    def __init__(
        self,
        desk: Desk,
        tokens: Tokens,
        limits: Limits,
        peers: "Peers | None",
        *,
        may_be_open: bool,
    ) -> None:
        self._desk, self._tokens, self._peers = desk, tokens, peers
        self._may_be_open, self._trusts = may_be_open, False
        self._rate = Rate(limits.requests_per_second, limits.burst)
        self._tenant_rate = Rate(limits.tenant_requests_per_second, limits.tenant_burst)

    @property
    def is_open(self) -> bool:
        """Say whether no token is needed; the first one that is made ends it."""
        return self._trusts or (self._may_be_open and self._tokens.is_empty())

    def trust(self) -> None:
        """Ask nobody for a token: for callers inside this process, never for a socket."""
        self._trusts = True

    def admitted(self, request: Request) -> tuple[Claim, Principal]:
        """Return what a caller claims and who that is.

        Raises:
            ApiError: ``unauthorized`` or ``too_many_requests``.
        """
        vouched = self._peers.principal(request) if self._peers is not None else None
        claim = claim_of(request, vouched)
        principal = self.identify(claim)
        if principal is None:
            raise ApiError("unauthorized")
        if vouched is None:
            wait = self._rate.wait_of(principal.id) or self._tenant_rate.wait_of(principal.tenant)
            if wait:
                raise ApiError("too_many_requests", retry_after=wait)
        return claim, principal

    def identify(self, claim: Claim) -> Principal | None:
        """Return who calls, or ``None``."""
        if claim.vouched is not None:
            return claim.vouched
        if self.is_open:
            # A page in a browser may reach a loopback address, also under a name of its own.
            if not is_loopback(claim.host) or not (claim.origin is None or is_ours(claim.origin)):
                return None
            roles = frozenset(get_args(ApiRole))
            return Principal(id=OPEN, name=OPEN, tenant=self._desk.settings.tenant, roles=roles)
        return self._tokens.principal(claim.token, self._desk.clock.now())
