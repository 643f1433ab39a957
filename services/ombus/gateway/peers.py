"""One gateway asks another: what, for whom, and signed with the secret that both know.

The signature covers method, target, caller and time, so that nobody without the secret can ask in
somebody's name. The body and the answer are as safe as the connection: between machines, TLS.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.runtime.folders import make_private
from starlette.requests import Request

from ombus.gateway.tokens import Principal

SIGNATURE: Final = "ombus-peer"
PRINCIPAL: Final = "ombus-principal"
PARTITIONS: Final = "ombus-partitions"
"""Header of an answer: of which partitions a list of sessions is."""
MAX_SKEW_SECONDS: Final = 60
"""Clocks of gateways differ by less; an old request is worth nothing."""
MIN_SECRET_BYTES: Final = 16
FILE: Final = "peer-secret"
"""In the data folder, made by whoever needs it first; gateways on other machines get a copy."""


class Peers:
    """Signs requests to other gateways, and knows theirs."""

    def __init__(self, secret: bytes, now: Callable[[], float] = time.time) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"a peer secret has at least {MIN_SECRET_BYTES} bytes")
        self._secret, self._now = secret, now

    def signed(self, method: str, target: bytes, principal: Principal) -> dict[str, str]:
        """Return the headers of a request that is passed on for ``principal``."""
        caller = base64.urlsafe_b64encode(msgspec.json.encode(principal)).decode()
        at_ms = str(round(self._now() * 1_000))
        return {
            PRINCIPAL: caller,
            SIGNATURE: f"{at_ms}:{self._signature(method, target, caller, at_ms)}",
        }

    def principal(self, request: Request) -> Principal | None:
        """Return for whom another gateway asks; ``None``: no gateway of ours does."""
        at_ms, _, signature = request.headers.get(SIGNATURE, "").partition(":")
        caller = request.headers.get(PRINCIPAL, "")
        good = self._signature(request.method, target_of(request), caller, at_ms)
        if not hmac.compare_digest(good.encode(), signature.encode()):
            return None
        if abs(self._now() - int(at_ms) / 1_000) > MAX_SKEW_SECONDS:
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(caller), type=Principal)

    def _signature(self, method: str, target: bytes, caller: str, at_ms: str) -> str:
        text = b"\n".join((at_ms.encode(), method.encode(), target, caller.encode()))
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()


def target_of(request: Request) -> bytes:
    """Return path and query as they stand in the request."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return path + b"?" + query if query else path


def peer_secret(folder: Path, named: Path | None) -> bytes:
    """Return the secret of the gateways: that of the file named, else the data folder's own.

    Raises:
        OSError: the file cannot be read. ValueError: it holds too little.
    """
    path = named or folder / FILE
    if named is None:
        make_private(folder)
        draft = folder / f".{FILE}.{secrets.token_hex(4)}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_hex(32))
        try:
            # Two that start at once agree on one.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    secret = path.read_text("utf-8").strip().encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"{path} holds less than {MIN_SECRET_BYTES} bytes")
    return secret
