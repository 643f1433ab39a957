"""What fleets append: many sessions at once, the same entries for the same seed.

Chats with forks, late parents, repeats, scopes, flushes, compaction requests, invalidations,
conflicts and types of tomorrow; every session is one publisher, so its order is its own.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from ombus.importers import Imported, open_transcripts
from ombus_schemas.codec import encode, key_of
from ombus_schemas.entries import Entry
from ombus_schemas.headers import headers_of
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.ports import Draft, EntryLog

from tests.support.sessions import chat, fact, settings

SHARED: Final = Path(__file__).parents[3] / "shared" / "transcripts"
FED_AT_ONCE: Final = 25
TENANTS: Final = ("acme", "beta", "gamma")


class Teller:
    """One session that goes on and on."""

    def __init__(self, number: int, seed: int, observe_tokens: int = 400) -> None:
        self.chance = random.Random(f"{seed}-{number}")
        self.session, self.tenant = f"s{number}", TENANTS[number % len(TENANTS)]
        self._observe_tokens = observe_tokens
        self._n = 0
        self._chain: list[str] = []
        self._held: list[Entry] = []
        self._last: Entry | None = None
        self._n_scopes = 0

    def __iter__(self) -> Iterator[Entry]:
        while True:
            yield self.next()

    def next(self) -> Entry:
        """Return the next entry of the session."""
        entry = self._next()
        return msgspec.structs.replace(
            entry, session_id=self.session, tenant_id=self.tenant, id=entry.id
        )

    def _next(self) -> Entry:
        chance = self.chance
        if self._n == 1:
            return settings(
                self._id(), self._leaf(), observe=self._observe_tokens, reflect=300,
                compact=4_000, pool=600, target=300, recent=6,
            )  # fmt: skip
        if self._held and chance.random() < 0.3:
            return self._held.pop(0)
        kind = chance.random()
        leaf = self._leaf()
        if leaf is None or kind < 0.8:
            return self._message(leaf)
        if kind < 0.84 and len(self._chain) > 4:
            return self._message(chance.choice(self._chain[-8:]))
        if kind < 0.87:
            # A child that arrives before its parent.
            parent = self._message(leaf)
            child = self._message(parent.id)
            self._held.append(parent)
            return child
        if kind < 0.89 and self._last is not None:
            return self._last
        if kind < 0.92:
            self._n_scopes += 1
            name = f"scope-{self._n_scopes}"
            self._held.append(fact(self._id(), leaf, "scope.entered", scopeId=name))
            return fact(self._id(), leaf, "scope.opened", scopeId=name, label=name)
        if kind < 0.94:
            return fact(self._id(), leaf, "flush.requested")
        if kind < 0.96:
            return fact(self._id(), leaf, "compact.requested")
        if kind < 0.97:
            hit = chance.choice(self._chain)
            return fact(self._id(), leaf, "sources.invalidated", ids=[hit], reason="corrected")
        if kind < 0.98:
            return fact(self._id(), leaf, "future.v9", anything={"is": ["kept", 1, None]})
        entry = self._message(chance.choice(self._chain[-3:]))
        assert isinstance(entry.parent_id, str)
        return msgspec.structs.replace(entry, expected_leaf=entry.parent_id)

    def _message(self, parent: str | None) -> Entry:
        entry_id = self._id()
        self._chain.append(entry_id)
        role = ("user", "assistant", "assistant", "user", "assistant")[self._n % 5]
        text = f"port {self._n} is used by service {self._n % 7}. " * self.chance.randrange(1, 6)
        self._last = chat(entry_id, parent, text, role=role)
        return self._last

    def _leaf(self) -> str | None:
        return self._chain[-1] if self._chain else None

    def _id(self) -> str:
        self._n += 1
        return f"e{self._n}"


def traffic(
    n_entries: int, n_sessions: int, seed: int = 1, observe_tokens: int = 400
) -> list[Entry]:
    """Return ``n_entries`` of ``n_sessions`` sessions, mixed as fleets mix them."""
    chance = random.Random(seed)
    tellers = [Teller(number, seed, observe_tokens) for number in range(n_sessions)]
    return [chance.choice(tellers).next() for _ in range(n_entries)]


def transcripts() -> list[Entry]:
    """Return the entries of real transcripts, which are not ours to commit; nothing elsewhere."""
    files = sorted(SHARED.rglob("*.json*")) if SHARED.is_dir() else []
    return [
        item.entry
        for file in files
        for transcript in open_transcripts(file, tenant="real")
        for item in transcript
        if isinstance(item, Imported)
    ]


def drafts_of(entries: Sequence[Entry]) -> list[Draft]:
    """Return entries as records to append."""
    return [
        Draft(key=key_of(entry), value=encode(entry), headers=headers_of(entry))
        for entry in entries
    ]


class Feed:
    """Traffic that goes on in the background until it is ended."""

    def __init__(
        self,
        log: EntryLog,
        n_sessions: int,
        seed: int,
        per_second: int,
        observe_tokens: int = 400,
    ) -> None:
        self._log, self._pause = log, FED_AT_ONCE / per_second
        self._tellers = [Teller(number, seed, observe_tokens) for number in range(n_sessions)]
        self._chance = random.Random(seed)
        self._sent: list[Draft] = []
        self.n_delayed = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> list[Draft]:
        """Stop, and return everything that was acknowledged."""
        self._ending.set()
        self._thread.join()
        return self._sent

    def _run(self) -> None:
        while not self._ending.wait(self._pause):
            entries = [self._chance.choice(self._tellers).next() for _ in range(FED_AT_ONCE)]
            drafts = drafts_of(entries)
            self._append(drafts)
            self._sent += drafts

    def _append(self, drafts: Sequence[Draft]) -> None:
        """Append until it is acknowledged, as publishers do: the first entry with an id wins."""
        while True:
            try:
                self._log.append(drafts)
            except RetryableError:
                self.n_delayed += 1
                time.sleep(0.2)
            else:
                return
