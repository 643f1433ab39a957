"""Who may call: bearer tokens, of which only hashes are kept, in ``tokens.db`` of the data folder.

A token is ``ombus_<id>_<secret>``; the secret has 256 random bits, so one SHA-256 is enough. Every
request asks the file, so a revocation holds from the next request on, in every process.
"""

import hashlib
import hmac
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, get_args

import msgspec
from ombus_schemas.api import ApiRole
from ombus_schemas.ids import is_tenant_id
from ombus_streams.runtime.folders import make_private

PREFIX: Final = "ombus"
FILE: Final = "tokens.db"
OPEN: Final = "local"
"""The name of whoever needs no token: of an open gateway, and of commands on the data folder."""
MAX_PATTERNS: Final = 64
_TOKEN: Final = re.compile(r"ombus_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_PATTERN: Final = re.compile(r"[A-Za-z0-9._:*-]{1,128}")
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS tokens(id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BLOB NOT NULL,"
    " tenant TEXT NOT NULL, roles TEXT NOT NULL, sessions TEXT NOT NULL, created_ms INTEGER NOT"
    " NULL, expires_ms INTEGER, revoked_ms INTEGER) WITHOUT ROWID"
)
_FIELDS: Final = "id, name, tenant, roles, sessions, created_ms, expires_ms, revoked_ms"
_REVOKE: Final = "UPDATE tokens SET revoked_ms = coalesce(revoked_ms, ?)"
_NOBODY: Final = hashlib.sha256(b"").digest()


class BadToken(ValueError):
    """What a token was to be made of makes no sense."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and what for."""

    id: str
    name: str
    tenant: str
    roles: frozenset[ApiRole]
    sessions: tuple[str, ...] = ("*",)
    """Patterns of session ids; ``*`` stands for anything."""

    def may_use(self, session_id: str) -> bool:
        return any(_fits(pattern, session_id) for pattern in self.sessions)


class TokenRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A token as it is listed; what it says itself is not kept."""

    id: str
    name: str
    tenant: str
    roles: tuple[str, ...]
    sessions: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None

    def state(self, now: datetime) -> str:
        if self.revoked_ms is not None:
            return "revoked"
        is_over = self.expires_ms is not None and self.expires_ms <= _ms(now)
        return "expired" if is_over else "valid"

    def may_do_as(self, tenant: str, roles: Sequence[str], sessions: Sequence[str]) -> bool:
        """Say whether a token of these may do what this one may."""
        mine = (self.tenant, set(self.roles), set(self.sessions))
        return mine == (tenant, set(roles), set(sessions))


class Tokens:
    """The tokens of a data folder. May be used from several threads and processes."""

    def __init__(self, folder: Path) -> None:
        make_private(folder)
        self.path = folder / FILE
        self._lock = threading.Lock()
        # Nobody else reads who may call, not even what the hashes are.
        self.path.touch(mode=0o600)
        self._connection = sqlite3.connect(
            self.path, timeout=10, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(_TABLE)

    def create(
        self,
        name: str,
        tenant: str,
        roles: Sequence[str],
        sessions: Sequence[str],
        now: datetime,
        lifetime: timedelta | None,
    ) -> str:
        """Return a new token, the only time it is seen.

        Raises:
            BadToken: a role nobody has, a pattern or tenant outside the grammar; a name that is
                taken. What was granted is its issuer's by name, so only a token that may do the
                same may have the name of one that is valid.
        """
        unknown = [role for role in roles if role not in get_args(ApiRole)]
        if unknown or not roles:
            raise BadToken(f"a role is one of {', '.join(get_args(ApiRole))}")
        if not is_tenant_id(tenant):
            raise BadToken("a tenant is 1 to 128 of A-Z a-z 0-9 . _ : -")
        if not 0 < len(sessions) <= MAX_PATTERNS or not all(map(_PATTERN.fullmatch, sessions)):
            raise BadToken("a session pattern is a session id in which * stands for anything")
        if lifetime is not None and lifetime <= timedelta():
            raise BadToken("a token lives for a while")
        if name == OPEN:
            raise BadToken(f"{OPEN} is whoever needs no token: choose another name")
        token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        expires_ms = None if lifetime is None else _ms(now + lifetime)
        row = (
            token_id, name, _hash(secret), tenant, " ".join(dict.fromkeys(roles)),
            " ".join(sessions), _ms(now), expires_ms, None,
        )  # fmt: skip
        with self._held() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            for other in _rows(connection):
                is_taken = other.name == name and other.state(now) == "valid"
                if is_taken and not other.may_do_as(tenant, roles, sessions):
                    raise BadToken(
                        f"{name} is the name of token {other.id}, which may do something else: "
                        f"choose another name, or first `ombus token revoke {other.id}`"
                    )
            connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return f"{PREFIX}_{token_id}_{secret}"

    def revoke(self, token_id: str, now: datetime) -> bool:
        """Let the token be worth nothing from now on; say whether there is one of this id."""
        with self._held() as connection:
            done = connection.execute(f"{_REVOKE} WHERE id = ?", (_ms(now), token_id))
            return done.rowcount == 1

    def revoke_all(self, now: datetime) -> None:
        """Let every token be worth nothing from now on."""
        with self._held() as connection:
            connection.execute(_REVOKE, (_ms(now),))

    def rows(self) -> list[TokenRow]:
        """Return every token there ever was, oldest first."""
        with self._held() as connection:
            return _rows(connection)

    def is_empty(self) -> bool:
        """Say whether there never was a token; a revoked one counts."""
        with self._held() as connection:
            return connection.execute("SELECT 1 FROM tokens LIMIT 1").fetchone() is None

    def principal(self, token: str, now: datetime) -> Principal | None:
        """Return who holds the token, or ``None``: unknown, expired and revoked are alike."""
        parts = _TOKEN.fullmatch(token)
        token_id, secret = parts.groups() if parts else ("", "")
        with self._held() as connection:
            found = connection.execute(
                f"SELECT hash, {_FIELDS} FROM tokens WHERE id = ?", (token_id,)
            ).fetchone()
        kept = found[0] if found else _NOBODY
        if not hmac.compare_digest(kept, _hash(secret)) or found is None:
            return None
        row = _row(*found[1:])
        if row.state(now) != "valid":
            return None
        roles = msgspec.convert(row.roles, frozenset[ApiRole])
        return Principal(
            id=row.id, name=row.name, tenant=row.tenant, roles=roles, sessions=row.sessions
        )

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _held(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._connection


def _rows(connection: sqlite3.Connection) -> list[TokenRow]:
    found = connection.execute(f"SELECT {_FIELDS} FROM tokens ORDER BY created_ms, id")
    return [_row(*each) for each in found.fetchall()]


def _row(
    token_id: str,
    name: str,
    tenant: str,
    roles: str,
    sessions: str,
    created_ms: int,
    expires_ms: int | None,
    revoked_ms: int | None,
) -> TokenRow:
    return TokenRow(
        id=token_id,
        name=name,
        tenant=tenant,
        roles=tuple(roles.split()),
        sessions=tuple(sessions.split()),
        created_ms=created_ms,
        expires_ms=expires_ms,
        revoked_ms=revoked_ms,
    )


def _fits(pattern: str, session_id: str) -> bool:
    parts = (re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), session_id) is not None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1_000)
