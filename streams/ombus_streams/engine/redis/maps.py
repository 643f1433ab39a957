"""The grant maps in Redis: read by anybody, moved forward by the granter (design.md section 10)."""

import secrets
from collections.abc import Iterable
from typing import Final, Literal

import msgspec
from redis.exceptions import RedisError

from ombus_streams.engine.redis.connection import RedisConnection, Reply, Word, open_client
from ombus_streams.engine.redis.layout import ADVANCE, FLIP, PUT, READ, RETIRE, Layout
from ombus_streams.memory.owner_grants import OwnerGrants, ScopeGrants
from ombus_streams.runtime.grant_fold import PartitionGrants
from ombus_streams.runtime.grants import GrantSnapshot, GrantsUnavailable, Watermark

MAX_DELTA_OWNERS: Final = 64
"""Maps that one script writes at most; a larger change is written as a new generation."""
MAX_DELTA_SCOPES: Final = 1_024
"""Scopes that one script writes at most."""
_TURNS: Final = 3
"""Generations that may change under one read."""

_encode = msgspec.msgpack.Encoder().encode
_scope_decoder = msgspec.msgpack.Decoder(ScopeGrants)

Published = Literal["current", "advanced", "written", "ahead", "contended"]
"""``ahead``: another granter is further. ``contended``: it moved meanwhile, or a part was lost."""


class Held(msgspec.Struct, frozen=True):
    """Where the maps of a partition stand."""

    generation: str
    next_offset: int
    digest: str


class RedisMaps:
    """One connection to the maps; for several threads."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection, self._client = connection, open_client(connection)
        self._generations: dict[tuple[str, int], str] = {}
        """Where to look first; a read that finds another generation looks there."""

    def snapshot(
        self, incarnation: str, partition: int, owner: bytes, scope_id: str
    ) -> GrantSnapshot | None:
        """Return the scope and the watermark of its partition, of one instant.

        Raises:
            GrantsUnavailable: Redis cannot be asked, or holds what nobody of us wrote.
        """
        layout, place = Layout(incarnation, partition), (incarnation, partition)
        generation = self._generations.get(place, "")
        for _ in range(_TURNS):
            found = self._ask(
                "EVAL_RO", READ, 2, layout.head, layout.owner(generation, owner),
                generation, scope_id,
            )  # fmt: skip
            match found:
                case []:
                    return None
                case [bytes(other)]:
                    generation = self._generations[place] = other.decode()
                case [bytes(), bytes(offset), bytes() | None as value]:
                    return GrantSnapshot(
                        Watermark(incarnation, int(offset)),
                        ScopeGrants() if value is None else _scope(value),
                    )
                case _:
                    raise GrantsUnavailable("Redis holds something else under our keys")
        raise GrantsUnavailable("the maps are being written again and again")

    def held(self, incarnation: str, partition: int) -> Held | None:
        """Return where the maps stand.

        Raises:
            GrantsUnavailable: see ``snapshot``.
        """
        layout = Layout(incarnation, partition)
        match self._ask("HMGET", layout.head, "generation", "next", "digest"):
            case [bytes(generation), bytes(offset), bytes(digest)]:
                return Held(generation.decode(), int(offset), digest.decode())
            case _:
                return None

    def publish(
        self, incarnation: str, partition: int, fold: PartitionGrants, *, overrules: bool = False
    ) -> Published:
        """Move the maps and their watermark forward to ``fold``, in one step.

        A delta is written only onto the very state it starts from; after whatever else is found
        there the whole map is written to a new generation, which becomes the current one.
        ``overrules``: also back, because the log ends before what is held.

        Raises:
            GrantsUnavailable: see ``snapshot``; what is held is what was, or what was to be.
        """
        held = self.held(incarnation, partition)
        if held is not None and not overrules:
            if (held.next_offset, held.digest) == (fold.next_offset, fold.digest):
                return "current"
            if held.next_offset > fold.next_offset:
                return "ahead"
            changed = fold.changed_since(held.next_offset, held.digest)
            maps = {owner: fold.by_owner[owner] for owner in changed or ()}
            n_scopes = sum(len(each.by_scope_id) for each in maps.values())
            is_small = len(maps) <= MAX_DELTA_OWNERS and n_scopes <= MAX_DELTA_SCOPES
            if changed is not None and is_small:
                return self._advance(incarnation, partition, held, fold, maps)
        return self._write(incarnation, partition, fold, overrules=overrules)

    def sweep(self, incarnation: str, partition: int) -> int:
        """Delete generations that are not the current one; return how many there were.

        Raises:
            GrantsUnavailable: see ``snapshot``.
        """
        layout, n_swept = Layout(incarnation, partition), 0
        named = self._ask("HKEYS", layout.generations)
        for raw in named if isinstance(named, list) else []:
            generation = raw.decode() if isinstance(raw, bytes) else ""
            if self._ask("EVAL", RETIRE, 2, layout.head, layout.generations, generation) == 1:
                self._drop(layout, generation)
                n_swept += 1
        return n_swept

    def close(self) -> None:
        self._client.close()

    def _advance(
        self,
        incarnation: str,
        partition: int,
        held: Held,
        fold: PartitionGrants,
        maps: dict[bytes, OwnerGrants],
    ) -> Published:
        layout = Layout(incarnation, partition)
        filled = {owner: each for owner, each in maps.items() if each.by_scope_id}
        words: list[Word] = [
            layout.head,
            layout.owners(held.generation),
            *(layout.owner(held.generation, owner) for owner in filled),
            held.generation,
            held.next_offset,
            held.digest,
            fold.next_offset,
            fold.digest,
        ]
        for owner, each in filled.items():
            words += [owner, len(each.by_scope_id), *_fields(each.by_scope_id.items())]
        done = self._ask("EVAL", ADVANCE, 2 + len(filled), *words)
        return "advanced" if done == 1 else "contended"

    def _write(
        self, incarnation: str, partition: int, fold: PartitionGrants, *, overrules: bool
    ) -> Published:
        layout, generation = Layout(incarnation, partition), secrets.token_hex(6)
        self._ask("HSET", layout.generations, generation, fold.next_offset)
        filled = [(owner, each) for owner, each in fold.by_owner.items() if each.by_scope_id]
        for owner, each in filled:
            keys = (layout.owners(generation), layout.owner(generation, owner))
            scopes = list(each.by_scope_id.items())
            for first in range(0, len(scopes), MAX_DELTA_SCOPES):
                some = scopes[first : first + MAX_DELTA_SCOPES]
                self._ask("EVAL", PUT, 2, *keys, owner, *_fields(some))
        done = self._ask(
            "EVAL", FLIP, 3, layout.head, layout.generations, layout.owners(generation),
            generation, fold.next_offset, fold.digest, len(filled), "over" if overrules else "",
        )  # fmt: skip
        if done == b"done":
            return "written"
        return "ahead" if done == b"behind" else "contended"

    def _drop(self, layout: Layout, generation: str) -> None:
        owners = layout.owners(generation)
        while isinstance(some := self._ask("SPOP", owners, 100), list) and some:
            for owner in some:
                if isinstance(owner, bytes):
                    self._ask("UNLINK", layout.owner(generation, owner))

    def _ask(self, *words: Word) -> Reply:
        try:
            return self._client.execute_command(*words)
        except (RedisError, OSError) as error:
            said = type(error).__name__
            raise GrantsUnavailable(f"{self._connection!r}: {said}: {error}") from error


def _fields(scopes: Iterable[tuple[str, ScopeGrants]]) -> Iterable[bytes | str]:
    for scope_id, scope in scopes:
        yield scope_id
        yield _encode(scope)


def _scope(value: bytes) -> ScopeGrants:
    try:
        return _scope_decoder.decode(value)
    except msgspec.DecodeError as error:
        raise GrantsUnavailable("Redis holds something else under our keys") from error
