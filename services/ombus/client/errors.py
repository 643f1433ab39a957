"""Errors of the client.

* OmbusError
  * Retryable           the same call may work later; ``retry_after`` seconds from now
    x Unavailable         the gateway is not reached, or the connection broke
    x Busy                it has too much to do, or asks for fewer requests
    x Behind              the fold has not come as far as the read asked for
  * Refused             the same call never works
    x Unauthorized        the token is none, or none any more
    x NotFound            it is not there, or not for this token: the two are not told apart
    x BadRequest          the gateway cannot read what was asked
    x Gone                a position of another log
    x TooLarge            a body over the gateway's limit
    x EntryRejected       an entry that admission refuses; its code says why
    x ScopeRefused        the work scopes of the leaf do not allow it
    x ScopeLimit          it would pass a cap of the work scopes
    x NotTheOwner         somebody else owns the grants of the session
    x Conflict            ``expectedLeaf`` was not the leaf any more; the entry is no leaf
    x SpoolFull           nothing more fits the spool: the entry was not taken
    x SpoolBusy           another process holds the spool
    x Closed              the client was closed before the entry was sent
"""


class OmbusError(Exception):
    """A call that did not do what was asked."""


class Retryable(OmbusError):
    """The same call may work later."""

    def __init__(self, fact: str, retry_after: float = 1.0) -> None:
        super().__init__(fact)
        self.retry_after = retry_after


class Unavailable(Retryable):
    """The gateway is not reached. What was appended may be on the log: ids make that harmless."""


class Busy(Retryable):
    """The gateway has too much to do."""


class Behind(Retryable):
    """The fold has not come so far."""


class Refused(OmbusError):
    """The same call never works; ``code`` is the gateway's."""

    code: str = ""

    def __init__(self, fact: str, code: str = "", request_id: str = "") -> None:
        super().__init__(fact)
        self.code, self.request_id = code, request_id


class Unauthorized(Refused):
    """The token is none, or none any more."""


class NotFound(Refused):
    """It is not there, or not for this token."""


class BadRequest(Refused):
    """The gateway cannot read what was asked."""


class Gone(Refused):
    """A position of another log."""


class TooLarge(Refused):
    """A body over the gateway's limit."""


class EntryRejected(Refused):
    """An entry that was not taken."""

    def __init__(self, entry_id: str, code: str, detail: str) -> None:
        super().__init__(f"entry {entry_id}: {detail} [{code}]", code)
        self.entry_id = entry_id


class Conflict(Refused):
    """``expectedLeaf`` was not the leaf any more."""

    def __init__(self, entry_id: str) -> None:
        super().__init__(
            f"entry {entry_id} lost its expected leaf: read the branches, then append again under "
            "another id",
            "conflict",
        )
        self.entry_id = entry_id


class ScopeRefused(Refused):
    """The work scopes of the leaf do not allow it; the fact says why."""


class ScopeLimit(Refused):
    """It would pass a cap of the work scopes."""


class NotTheOwner(Refused):
    """Somebody else owns the grants of the session: whoever granted first."""


class SpoolFull(Refused):
    """Nothing more fits the spool."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(
            f"{path} holds {limit:,} bytes, its cap: the gateway has been away too long for it"
        )
        self.limit = limit


class SpoolBusy(Refused):
    """Another process holds the spool."""


class Closed(Refused):
    """The client was closed first."""


BY_CODE: dict[str, type[Refused]] = {
    "unauthorized": Unauthorized,
    "not_found": NotFound,
    "no_leaf": NotFound,
    "position_gone": Gone,
    "too_large": TooLarge,
    "scope_refused": ScopeRefused,
    "scope_limit": ScopeLimit,
    "not_the_owner": NotTheOwner,
}
"""Any other code that is not to be retried is a ``BadRequest``."""
