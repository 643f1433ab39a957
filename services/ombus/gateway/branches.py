"""Sessions of the whole log, for shared reads: rows of this process, or another gateway's."""

import ssl
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlencode

import httpx
import msgspec
from ombus_schemas.grant_api import ShareAnswer
from ombus_schemas.route import PREFIX
from ombus_streams.memory.shared_rows import SharedBranch
from ombus_streams.runtime.errors import NotServed
from ombus_streams.runtime.grants import GrantsUnavailable
from ombus_streams.runtime.ports import EntryLog
from ombus_streams.runtime.row_branches import RowBranches

from ombus.gateway.hosting import Host
from ombus.gateway.peers import Peers
from ombus.gateway.tokens import Principal

if TYPE_CHECKING:
    from ombus_streams.engine.kafka.standing import Owner

PEER_SECONDS: Final = 2.0
"""How long one gateway waits for a branch of another; then the branch is left out, or denied."""


class Owned(Protocol):
    """What is asked of an engine that shares its log with others."""

    @property
    def log(self) -> EntryLog: ...

    def owner_of(self, partition: int) -> "Owner | None": ...


class GatewayBranches:
    """Sessions of the whole log: rows of this process, or another gateway's over HTTP."""

    def __init__(self, host: Host, engine: Owned, peers: Peers, address: str) -> None:
        self._host, self._engine, self._peers, self._address = host, engine, peers, address
        self._own = RowBranches(host.desk.engine.reading)
        # No proxy stands between gateways.
        trusted = ssl.create_default_context()
        self._http = httpx.Client(timeout=PEER_SECONDS, verify=trusted, trust_env=False)

    def fetch(self, key: bytes, scope_id: str, memory_id: str | None) -> SharedBranch | None:
        partition = self._engine.log.partition_of(key)
        owner = self._engine.owner_of(partition)
        if owner is None:
            raise NotServed(partition)
        if owner.address in ("", self._address):
            return self._own.fetch(key, scope_id, memory_id)
        tenant, _, session = key.decode().partition("/")
        query = (
            {"scope": scope_id} if memory_id is None else {"scope": scope_id, "memory": memory_id}
        )
        target = f"{PREFIX}/sessions/{session}/scopes/share?{urlencode(query)}".encode()
        asker = Principal(id="gateway", name="gateway", tenant=tenant, roles=frozenset({"reader"}))
        try:
            answer = self._http.get(
                httpx.URL(owner.address).copy_with(raw_path=target),
                headers=self._peers.signed("GET", target, asker),
            )
        except httpx.TransportError as error:
            raise GrantsUnavailable(f"the gateway of {session} does not answer") from error
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise GrantsUnavailable(f"the gateway of {session} answers {answer.status_code}")
        try:
            found = msgspec.json.decode(answer.content, type=ShareAnswer)
        except msgspec.DecodeError as error:
            raise GrantsUnavailable(f"the gateway of {session} answers no branch") from error
        return SharedBranch(**msgspec.structs.asdict(found))

    def close(self) -> None:
        self._http.close()
