"""What a hostile log holds: a seeded stream of valid entries with everything else between them."""

import json
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

TENANT: Final = "t"
MIN_VALID: Final = 0.3
"""The part of a stream that must be valid, whatever the seed."""
VALID: Final = 0.4
HUGE_BYTES: Final = 11 * 1024 * 1024
HUGE_EVERY: Final = 1_500
N_SESSIONS: Final = 5
PER_GENERATION: Final = 3_000
"""Entries after which five new sessions take the place of the old ones."""
AT: Final = "2026-02-03T04:05:06.000Z"

Way = Literal["log", "admission"]
Meant = Literal["folds", "dead", "any"]
"""``dead`` must reach the dead letters; what ``any`` comes to is for the model to say."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody appends: bytes on the log, or a tree offered to admission."""

    name: str
    way: Way
    meant: Meant
    is_valid: bool = False
    """It is what a well-behaved writer sends."""
    key: bytes | None = None
    value: bytes | None = None
    tree: JsonObject = {}


class Stream:
    """Offers, the same ones for the same seed, five sessions at a time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._n = 0
        self._chain: defaultdict[str, list[str]] = defaultdict(list)
        self._side: defaultdict[str, list[str]] = defaultdict(list)
        self._trees: defaultdict[str, list[JsonObject]] = defaultdict(list)
        self._memory: defaultdict[str, list[str]] = defaultdict(list)
        self._orphans: list[tuple[str, str]] = []
        self._valid: tuple[Callable[[str], Offer], ...] = (
            *(self._message,) * 8, self._observed, self._observed, self._reflected, self._dropped,
            self._repeated, self._event, self._late_parent,
        )  # fmt: skip
        self._hostile: tuple[Callable[[str], Offer], ...] = (
            self._garbage, self._garbage, self._null, self._wrong_key, self._nested,
            self._no_parent, self._same_id, self._same_id, self._forged_record,
            self._forged_record,
            self._forged_compaction, self._wrong_types, self._wrong_types, self._wrong_body,
            self._wrong_body, self._surrogates, self._numbers, self._future, self._cycle,
            self._self_parent, self._unknown_parent, self._on_side, self._side_message,
            self._invalidation, self._scope, self._setting, self._expected_leaf, self._request,
            self._offered, self._offered, self._offered, self._side_unknown,
        )  # fmt: skip

    def next(self) -> Offer:
        """Return the next offer."""
        self._n += 1
        # Skewed: the first session is long enough for parked entries to be given up.
        place = int(N_SESSIONS * self.chance.random() ** 3)
        session = f"s{self._n // PER_GENERATION * N_SESSIONS + place}"
        if self._n % HUGE_EVERY == 0:
            return self._huge(session)
        if self.chance.random() < VALID:
            offer = self.chance.choice(self._valid)(session)
            return msgspec.structs.replace(offer, is_valid=True)
        return self.chance.choice(self._hostile)(session)

    def follow(self, key: bytes, tip: str) -> None:
        """Go on from ``tip``, the default leaf now, as a client does that has asked for it."""
        chain = self._chain[key.decode().partition("/")[2]]
        if not chain or chain[-1] != tip:
            chain.append(tip)

    # Valid ones.

    def _message(self, session: str) -> Offer:
        role = self.chance.choice(("user", "assistant", "tool"))
        text = " ".join(self.chance.choices(_WORDS, k=self.chance.randint(1, 12)))
        content: list[JsonValue] = [{"type": "text", "text": text}]
        message: JsonObject = {"role": role, "content": content}
        chain = self._chain[session]
        forks = chain and self.chance.random() < 0.03
        parent = self.chance.choice(chain[-50:]) if forks else (chain[-1] if chain else None)
        return self._put("message", session, parent, {"kind": "message", "message": message})

    def _observed(self, session: str) -> Offer:
        sources = self.chance.sample(self._chain[session], min(3, len(self._chain[session])))
        memory_id = f"{self._n:012x}"
        self._memory[session].append(memory_id)
        items: list[JsonValue] = [self._item(memory_id, sources or ["nothing"])]
        data: JsonObject = {"type": "om.observations.recorded", "observations": items}
        if sources and self.chance.random() < 0.5:
            data["coversUpToId"] = sources[0]
        return self._record("observed", session, data)

    def _reflected(self, session: str) -> Offer:
        known = self._memory[session]
        supports: list[JsonValue] = [*self.chance.sample(known, min(2, len(known)))]
        item: JsonObject = {"id": f"{self._n:012x}", "content": "gist", "tokenCount": 1}
        item["supportingObservationIds"] = supports or ["0" * 12]
        data: JsonObject = {"type": "om.reflections.recorded", "reflections": [item]}
        return self._record("reflected", session, data)

    def _dropped(self, session: str) -> Offer:
        known = self._memory[session]
        ids: list[JsonValue] = [*self.chance.sample(known, min(2, len(known))), "f" * 12]
        data: JsonObject = {"type": "om.observations.dropped", "observationIds": ids}
        if self.chance.random() < 0.5:
            data["reason"] = "pruned"
        return self._record("dropped", session, data)

    def _repeated(self, session: str) -> Offer:
        if not self._trees[session]:
            return self._message(session)
        tree = {**self.chance.choice(self._trees[session]), "timestamp": "2027-01-01T00:00:00Z"}
        return self._raw("repeated", session, tree, "folds")

    def _event(self, session: str) -> Offer:
        chain = self._chain[session]
        body: JsonObject = {"kind": "event", "event": {"n": self._n}}
        return self._put("event", session, chain[-1] if chain else None, body)

    def _late_parent(self, session: str) -> Offer:
        """Bring the parent that an earlier entry waits for."""
        if not self._orphans:
            return self._message(session)
        session, entry_id = self._orphans.pop()
        chain = self._chain[session]
        body: JsonObject = {"kind": "metadata", "metadata": {"late": True}}
        return self._put("late", session, chain[-1] if chain else None, body, entry_id)

    # Hostile ones.

    def _garbage(self, session: str) -> Offer:
        raw = self.chance.choice(_GARBAGE)
        if self.chance.random() < 0.5:
            raw = self.chance.randbytes(self.chance.randint(0, 60))
        return self._bytes("garbage", session, raw)

    def _null(self, session: str) -> Offer:
        return self._bytes("null", session, None)

    def _huge(self, session: str) -> Offer:
        text = "x" * HUGE_BYTES
        tree = self._tree(session, None, {"kind": "summary", "summary": text})
        return self._raw("huge", session, tree, "dead")

    def _wrong_key(self, session: str) -> Offer:
        tree = self._tree(session, None, {"kind": "event"})
        key = self.chance.choice((None, b"", b"t", b"t/other", b"x/" + session.encode(), b"\xff/s"))
        return Offer(name="wrong key", way="log", meant="dead", key=key, value=_bytes(tree))

    def _nested(self, session: str) -> Offer:
        depth = self.chance.choice((64, 65, 500, 20_000))
        raw = _bytes(self._tree(session, None, {"kind": "event", "event": 0}))
        deep = self.chance.choice((b"[", b'{"a":')) * depth
        close = b"]" if deep.startswith(b"[") else b"}"
        return self._bytes(
            "nested", session, raw.replace(b'"event":0', b'"event":' + deep + b"0" + close * depth)
        )

    def _no_parent(self, session: str) -> Offer:
        tree = self._tree(session, None, {"kind": "event"})
        del tree["parentId"]
        return self._raw("no parent", session, tree, "dead")

    def _same_id(self, session: str) -> Offer:
        if not self._trees[session]:
            return self._garbage(session)
        tree = {**self.chance.choice(self._trees[session]), "label": f"other {self._n}"}
        return self._raw("same id", session, tree, "dead")

    def _forged_record(self, session: str) -> Offer:
        """A worker's record whose base no view has ever reached."""
        anchor = self._anchor(session)
        base = self.chance.choice(("never-was", *self._side[session][-3:]))
        items: list[JsonValue] = [self._item("e" * 12, [anchor or "x"])]
        data: JsonObject = {"base": base, "cause": "threshold", "coversUpToId": anchor}
        bodies: tuple[JsonObject, ...] = (
            {"type": "om.observations.recorded", "observations": items},
            {"type": "om.reflections.recorded", "reflections": []},
            {"type": "om.observations.dropped", "observationIds": ["e" * 12]},
        )
        data |= self.chance.choice(bodies)
        return self._put("forged", session, anchor, {"kind": "custom", "data": data}, side=True)

    def _forged_compaction(self, session: str) -> Offer:
        anchor = self._anchor(session)
        memory: JsonObject = {"type": "om.folded", "version": 1, "fullFold": True}
        memory |= {"observations": [], "reflections": [], "droppedObservationIds": []}
        folded: JsonObject = {"observations": "never-was"}
        data: JsonObject = {"base": "never-was", "keepEntryIds": [], "throughEntryId": anchor}
        data |= {"memory": memory, "foldedThrough": folded}
        body: JsonObject = {"kind": "compaction", "summary": "gone", "data": data}
        return self._put("compaction", session, anchor, body, side=True)

    def _wrong_types(self, session: str) -> Offer:
        tree = self._tree(session, self._anchor(session), {"kind": "message"})
        tree["message"] = {"role": "user", "content": [{"type": "text", "text": "t"}]}
        for _ in range(self.chance.randint(1, 3)):
            tree[self.chance.choice(_FIELDS)] = self.chance.choice(_ODD)
        return self._raw("wrong types", session, tree, "any")

    def _wrong_body(self, session: str) -> Offer:
        data: JsonObject = {"type": self.chance.choice(_BODIES)}
        for _ in range(self.chance.randint(1, 4)):
            data[self.chance.choice(_BODY_FIELDS)] = self.chance.choice(_ODD)
        data.setdefault("base", "never-was")
        side = self.chance.random() < 0.5
        body: JsonObject = {"kind": "custom", "data": data}
        return self._put("wrong body", session, self._anchor(session), body, side=side)

    def _surrogates(self, session: str) -> Offer:
        tree = self._tree(session, self._anchor(session), {"kind": "summary", "summary": "@"})
        raw = _bytes(tree).replace(b'"@"', self.chance.choice((b'"\\ud800"', b'"\xed\xa0\x80"')))
        return self._bytes("surrogates", session, raw, "any")

    def _numbers(self, session: str) -> Offer:
        tree = self._tree(session, self._anchor(session), {"kind": "event", "event": [0]})
        number = self.chance.choice(_NUMBERS)
        return self._bytes(
            "numbers", session, _bytes(tree).replace(b"[0]", b"[" + number + b"]"), "any"
        )

    def _future(self, session: str) -> Offer:
        data: JsonObject = {"type": "om.future.v9", "anything": [1, {"at": "all"}]}
        return self._put("future", session, self._anchor(session), {"kind": "custom", "data": data})

    def _cycle(self, session: str) -> Offer:
        """One half of two entries that name each other; the other half follows some day."""
        self._n += 1
        own, other = f"c{self._n}", f"c{self._n}x"
        if self.chance.random() < 0.5:
            own, other = f"c{self._n - 3}x", f"c{self._n - 3}"
        return self._raw(
            "cycle", session, self._tree(session, other, {"kind": "event"}, own), "any"
        )

    def _self_parent(self, session: str) -> Offer:
        own = f"p{self._n}"
        return self._raw("self", session, self._tree(session, own, {"kind": "event"}, own), "any")

    def _unknown_parent(self, session: str) -> Offer:
        parent = f"q{self._n}"
        self._orphans.append((session, parent))
        tree = self._tree(session, parent, {"kind": "event", "event": "child"})
        return self._raw("unknown parent", session, tree, "any")

    def _side_unknown(self, session: str) -> Offer:
        data: JsonObject = {"type": "om.flush.completed", "flushId": "x"}
        tree = self._tree(session, f"u{self._n}", {"kind": "custom", "data": data, "side": True})
        return self._raw("side unknown", session, tree, "any")

    def _on_side(self, session: str) -> Offer:
        side = self._side[session]
        body: JsonObject = {"kind": "event", "event": "under a side record"}
        tree = self._tree(session, self.chance.choice(side) if side else None, body)
        return self._raw("on side", session, tree, "any")

    def _side_message(self, session: str) -> Offer:
        message: JsonObject = {"role": "user", "content": [{"type": "text", "text": "beside"}]}
        body: JsonObject = {"kind": "message", "message": message, "side": True}
        return self._raw(
            "side message", session, self._tree(session, self._anchor(session), body), "any"
        )

    def _invalidation(self, session: str) -> Offer:
        known = [*self._chain[session][-40:], *self._memory[session][-5:], "nobody"]
        n_ids = len(known) if self.chance.random() < 0.03 else self.chance.randint(0, 3)
        ids: list[JsonValue] = [*self.chance.sample(known, min(n_ids, len(known)))]
        if self.chance.random() < 0.2:
            ids += [5, None, {"id": 1}]
        reason = self.chance.choice(("revoked", "corrected", "deleted", "because", 7))
        data: JsonObject = {"type": "om.sources.invalidated", "ids": ids, "reason": reason}
        body: JsonObject = {"kind": "custom", "data": data, "side": True}
        parent = self.chance.choice((self._anchor(session), None, "nowhere"))
        return self._raw("invalidation", session, self._tree(session, parent, body), "any")

    def _scope(self, session: str) -> Offer:
        n_scopes = self.chance.randint(0, 400)
        own = self.chance.choice((f"scope{n_scopes}", "session", "", "../x", "x" * 5_000))
        data: JsonObject = {"type": self.chance.choice(_SCOPES), "scopeId": own, "id": own}
        data |= {"label": "l" * self.chance.choice((1, 600)), "kind": "task"}
        refs: list[JsonValue] = [f"entry:e{n}" for n in range(self.chance.choice((0, 3, 4_200)))]
        data |= {"refs": refs, "parentId": self.chance.choice((None, "session", own))}
        return self._put(
            "scope", session, self._anchor(session), {"kind": "custom", "data": data}, side=True
        )

    def _setting(self, session: str) -> Offer:
        group: JsonObject = {
            self.chance.choice(("observation", "reflection", "context", "dropper", "nothing")): {
                self.chance.choice(("messageTokens", "observationTokens", "targetTokens", "x")):
                self.chance.choice((-1, 0, 1, 10**30, "5", None, [], 1.5))
            }
        }  # fmt: skip
        data: JsonObject = {"type": "om.settings.changed", "settings": group}
        return self._put(
            "setting", session, self._anchor(session), {"kind": "custom", "data": data}, side=True
        )

    def _request(self, session: str) -> Offer:
        data: JsonObject = {"type": self.chance.choice(_REQUESTS), "runId": f"r{self._n % 7}"}
        data |= {"flushId": f"e{self._n - 9}", "keepRecentEntries": self.chance.choice(_ODD)}
        return self._put(
            "request", session, self._anchor(session), {"kind": "custom", "data": data}, side=True
        )

    def _expected_leaf(self, session: str) -> Offer:
        chain = self._chain[session]
        parent = self.chance.choice(chain[-3:]) if chain else None
        body: JsonObject = {"kind": "event", "event": "expects"}
        body["expectedLeaf"] = self.chance.choice((parent, "elsewhere")) or "elsewhere"
        return self._raw("expected leaf", session, self._tree(session, parent, body), "any")

    def _offered(self, session: str) -> Offer:
        """A tree that a client hands to admission."""
        tree = self._tree(session, self._anchor(session), {"kind": "message"})
        tree["message"] = {"role": "user", "content": self.chance.choice(_ODD)}
        for _ in range(self.chance.randint(0, 3)):
            tree[self.chance.choice((*_FIELDS, "bogus"))] = self.chance.choice((*_ODD, *_UNREAL))
        return Offer(name="offered", way="admission", meant="any", tree=tree)

    # Their parts.

    def _item(self, memory_id: str, sources: list[str]) -> JsonObject:
        ids: list[JsonValue] = [*sources]
        relevance = self.chance.choice(("low", "medium", "high", "critical"))
        return {
            "id": memory_id, "content": f"fact {self._n}", "timestamp": AT, "relevance": relevance,
            "sourceEntryIds": ids, "tokenCount": self.chance.randint(1, 9),
        }  # fmt: skip

    def _anchor(self, session: str) -> str | None:
        chain = self._chain[session]
        if not chain:
            return None
        return self.chance.choice(chain[-5:]) if self.chance.random() < 0.05 else chain[-1]

    def _record(self, name: str, session: str, data: JsonObject) -> Offer:
        body: JsonObject = {"kind": "custom", "data": data, "origin": "worker"}
        return self._put(name, session, self._anchor(session), body, side=True)

    def _put(
        self,
        name: str,
        session: str,
        parent: str | None,
        body: JsonObject,
        entry_id: str | None = None,
        *,
        side: bool = False,
        meant: Meant = "folds",
    ) -> Offer:
        """Return an entry that attaches at once, and remember it for later ones."""
        tree = self._tree(session, parent, {**body, "side": True} if side else body, entry_id)
        (self._side if side else self._chain)[session].append(str(tree["id"]))
        self._trees[session].append(tree)
        return self._raw(name, session, tree, meant)

    def _tree(
        self, session: str, parent: str | None, body: JsonObject, entry_id: str | None = None
    ) -> JsonObject:
        own = entry_id or f"e{self._n}"
        around: JsonObject = {"id": own, "sessionId": session, "tenantId": TENANT}
        return {**around, "parentId": parent, "timestamp": AT, "schemaVersion": 1, **body}

    def _raw(self, name: str, session: str, tree: JsonObject, meant: Meant) -> Offer:
        key = f"{TENANT}/{session}".encode()
        return Offer(name=name, way="log", meant=meant, key=key, value=_bytes(tree))

    def _bytes(self, name: str, session: str, raw: bytes | None, meant: Meant = "any") -> Offer:
        key = f"{TENANT}/{session}".encode()
        return Offer(name=name, way="log", meant=meant, key=key, value=raw)


def _bytes(tree: JsonObject) -> bytes:
    return json.dumps(tree, separators=(",", ":")).encode()


_WORDS: Final = (
    "build",
    "failed",
    "with",
    "port",
    "8080",
    "деплой",
    "🙂",
    "please",
    "never",
    "use",
)
_GARBAGE: Final = (
    b"", b"\xff\xfe{", b"{", b"[]", b"null", b'"text"', b"[1,2,3]", b"{}", b'{"id":"x"}',
    b'{"id":"a","sessionId":"s0","kind":"event"', b"\x00" * 40, b'{"id":null}', b"\xef\xbb\xbf{}",
)  # fmt: skip
_FIELDS: Final = (
    "id", "sessionId", "tenantId", "parentId", "timestamp", "kind", "schemaVersion", "runId",
    "message", "event", "data", "summary", "label", "model", "previousModel", "metadata", "origin",
    "ownership", "side", "expectedLeaf", "enc",
)  # fmt: skip
_ODD: Final[tuple[JsonValue, ...]] = (
    None, True, 0, -1, 1.5, 10**18, 2**63, "", "x", "\u0000", "é" * 300, [], [[]], [None, 1, "a"],
    {}, {"": None}, {"type": "text"}, [{"type": "tool_result", "id": 5}], {"role": 1},
)  # fmt: skip
_UNREAL: Final[tuple[JsonValue, ...]] = (
    "\ud800", {"\udfff": 1}, float("nan"), float("inf"), 10**5_000, "😀\ud83d",
)  # fmt: skip
_NUMBERS: Final = (
    b"1e999", b"-1e999", b"1" * 400, b"1" * 30, b"0.1e-999", b"9223372036854775808", b"1E400",
    b"18446744073709551616", b"-0", b"00", b"NaN",
)  # fmt: skip
_BODIES: Final = (
    "om.observations.recorded", "om.reflections.recorded", "om.observations.dropped", "om.folded",
    "om.sources.linked", "om.session.owner", "om.session.erased", "om.log.created", "om.",
    "om.run.started", "om.compact.failed", "om.scope.granted",
)  # fmt: skip
_BODY_FIELDS: Final = (
    "observations", "reflections", "observationIds", "coversUpToId", "base", "through", "seen",
    "reason", "cause", "scopeId", "producedBy", "foldedThrough", "memory", "keepEntryIds", "ids",
    "settings", "runId", "flushId", "requestId", "version",
)  # fmt: skip
_SCOPES: Final = (
    "om.scope.opened", "om.scope.opened", "om.scope.entered", "om.scope.left", "om.scope.closed",
    "om.scope.bound", "om.scope.unbound", "om.scope.granted", "om.scope.revoked",
)  # fmt: skip
_REQUESTS: Final = (
    "om.flush.requested", "om.compact.requested", "om.run.started", "om.run.finished",
    "om.flush.failed", "om.compact.completed",
)  # fmt: skip
