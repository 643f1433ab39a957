"""A state machine over one session on the embedded ports, judged by the slow model at each look."""

import os
from typing import Final

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from ombus_schemas.codec import encode
from ombus_schemas.copies import copy_of
from ombus_schemas.entries import Entry, Origin
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory import duties, tree
from ombus_streams.memory.effects import Run
from ombus_streams.memory.session import Session
from ombus_streams.runtime.provider import ModelRequest, TurnFailed
from ombus_streams.runtime.scheduler import Task

from tests.memory.model.compare import differences, entries_of, reading_differences, tiling_faults
from tests.memory.model.tree import build
from tests.memory.model.view import walk
from tests.support.engine import KEY, Driver, digest, diligent, refolded, worker
from tests.support.sessions import (
    SESSION,
    chat,
    compaction,
    custom,
    drops,
    fact,
    observations,
    observed,
    payload,
    reflected,
    reflections,
    settings,
)

PARKED_FOR: Final = 6
THOROUGH: Final = "OMBUS_THOROUGH" in os.environ
SMALL: Final = st.integers(0, 5)
COUNTS: Final = (0, 1, 2, 3, 4, 1e21)
"""Tokens an import may say: beside the last no smaller one is seen in a sum (S3)."""


class SessionMachine(RuleBasedStateMachine):
    """Hosts, importers, workers and their failures append; the fold must be the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(tree, "PARKED_FOR", PARKED_FOR)
        self.mood = "works"
        self.driver = Driver(worker(self.answer))
        self.n_entries = 0
        self.missing: list[str] = []
        self.in_flight: list[tuple[Task, Entry]] = []
        self.delivered: list[Entry] = []
        self.runs: dict[str, object] = {}

    def answer(self, request: ModelRequest) -> list[object]:
        """Work, fail for now, or refuse whatever holds a certain source."""
        if self.mood == "fails":
            return [TurnFailed(message="overloaded", code=503)]
        if self.mood == "refuses" and any(
            int(each.id[-1], 36) % 3 == 0 for each in request.material.sources
        ):
            return [TurnFailed(message="content policy", is_refusal=True)]
        return diligent(request)

    # What there is on the log, folded or not.

    def log(self) -> list[Entry]:
        return entries_of(self.driver.log.records, KEY)

    def chain_ids(self) -> list[str]:
        return [entry.id for entry in self.log() if not entry.side]

    def name(self) -> str:
        self.n_entries += 1
        return f"e{self.n_entries}"

    def pick(self, n: int, names: list[str]) -> str | None:
        """Return one of the newest names, mostly the last."""
        return names[-1 - min(n, len(names) - 1)] if names else None

    def anchor(self, n: int) -> str | None:
        return self.pick(n, self.chain_ids())

    def memory_ids(self) -> list[str]:
        found: list[str] = []
        for entry in self.log():
            data = entry.data
            if isinstance(data, dict):
                for field in ("observations", "reflections"):
                    listed = data.get(field)
                    if isinstance(listed, list):
                        found += [str(item["id"]) for item in listed if isinstance(item, dict)]
        return found or ["0" * 12]

    @initialize(
        observe=st.sampled_from([20, 60]),
        chunk=st.sampled_from([None, 30]),
        keep=st.sampled_from([5, 20]),
        recent=st.integers(0, 3),
    )
    def start(self, observe: int, chunk: int | None, keep: int, recent: int) -> None:
        self.driver.append(
            settings(
                self.name(),
                None,
                observe=observe,
                reflect=12,
                compact=120,
                recent=recent,
                target=keep,
                pool=12,
                chunk=chunk,
            )
        )

    @rule(
        back=SMALL,
        role=st.sampled_from(["user", "assistant", "tool", "system"]),
        injected=st.booleans(),
        tokens=st.sampled_from([12, 25]),
    )
    def says(self, back: int, role: str, injected: bool, tokens: int) -> None:
        origin: Origin | None = "injected" if injected and role == "user" and back == 0 else None
        self.driver.append(
            chat(self.name(), self.anchor(back // 3), role=role, tokens=tokens, origin=origin)
        )

    @rule(back=SMALL)
    def forks(self, back: int) -> None:
        self.driver.append(chat(self.name(), self.anchor(back), tokens=15))

    @rule()
    def begins_again(self) -> None:
        self.driver.append(chat(self.name(), None, tokens=15))

    @rule()
    def a_copy_arrives(self) -> None:
        name = self.name()
        source = msgspec.structs.replace(chat(name, None, tokens=15), session_id="child")
        self.driver.append(copy_of(source, SESSION))

    @rule(back=SMALL, honest=st.booleans())
    def races(self, back: int, honest: bool) -> None:
        parent = self.anchor(back)
        expected = parent if honest else "elsewhere"
        self.driver.append(chat(self.name(), parent, tokens=15, expected_leaf=expected))

    @rule(side=st.booleans())
    def arrives_before_its_parent(self, side: bool) -> None:
        parent = self.missing[-1] if self.missing and self.n_entries % 2 else f"late{self.name()}"
        if parent not in self.missing:
            self.missing.append(parent)
        name = self.name()
        if side:
            self.driver.append(fact(name, parent, "label.set"))
        else:
            self.driver.append(chat(name, parent, tokens=15))
            if self.n_entries % 3 == 0:
                self.driver.append(chat(self.name(), name, tokens=15))

    @precondition(lambda self: self.missing)
    @rule(back=SMALL)
    def parent_arrives(self, back: int) -> None:
        self.driver.append(chat(self.missing.pop(), self.anchor(back), tokens=15))

    @rule(n=st.integers(0, 30), change=st.sampled_from(["nothing", "parent", "text"]))
    def is_sent_again(self, n: int, change: str) -> None:
        log = self.log()
        if not log:
            return
        entry = log[n % len(log)]
        match change:
            case "parent":
                self.driver.log.put(KEY, encode(chat_like(entry, parent_id=None)))
            case "text":
                self.driver.log.put(KEY, encode(chat_like(entry, label="other")))
            case _:
                self.driver.log.put(KEY, encode(entry))

    @rule(value=st.sampled_from([None, b"", b"{", b"[]", b'{"id":"x"}', b"\xff\xfe{"]))
    def something_unreadable_arrives(self, value: bytes | None) -> None:
        self.driver.log.put(KEY, value)

    # Imports: chain entries, or side records, without a base.

    @rule(back=SMALL, cover=st.integers(0, 8), n=SMALL, side=st.booleans())
    def observations_are_imported(self, back: int, cover: int, n: int, side: bool) -> None:
        ids = self.chain_ids()
        covers = self.pick(cover, ids) if cover < 7 else "nobody"
        item = observed(f"imported {n}", ids[n % len(ids)] if ids else "nobody", tokens=COUNTS[n])
        body = observations(item, covers=covers if cover else None)
        self.driver.append(custom(self.name(), self.anchor(back), body, side=side))

    @rule(back=SMALL, n=st.integers(0, 30), m=st.integers(0, 30), side=st.booleans())
    def reflections_are_imported(self, back: int, n: int, m: int, side: bool) -> None:
        known = self.memory_ids()
        item = reflected(f"imported {n}", known[n % len(known)], known[m % len(known)])
        self.driver.append(custom(self.name(), self.anchor(back), reflections(item), side=side))

    @rule(back=SMALL, n=st.integers(0, 30), pruned=st.booleans(), side=st.booleans())
    def drops_are_imported(self, back: int, n: int, pruned: bool, side: bool) -> None:
        known = self.memory_ids()
        reason: dict[str, JsonValue] = {"reason": "pruned"} if pruned else {}
        body = drops(known[n % len(known)], **reason)
        self.driver.append(custom(self.name(), self.anchor(back), body, side=side))

    @rule(back=SMALL, cover=SMALL, n=SMALL, is_compaction=st.booleans())
    def a_payload_is_imported(self, back: int, cover: int, n: int, is_compaction: bool) -> None:
        ids, known = self.chain_ids(), self.memory_ids()
        item = observed(f"imported {n}", ids[n % len(ids)] if ids else "nobody", tokens=COUNTS[n])
        memory = payload(item, dropped=(known[n % len(known)],) if n == 3 else ())
        data: JsonObject = {"memory": memory, "keepEntryIds": []}
        if cover:
            data["throughEntryId"] = self.pick(cover, ids) or "nobody"
        if is_compaction:
            self.driver.append(compaction(self.name(), self.anchor(back), data, side=False))
        else:
            self.driver.append(custom(self.name(), self.anchor(back), data, side=False))

    # Hosts.

    @rule(back=SMALL, full=st.booleans())
    def flush_is_requested(self, back: int, full: bool) -> None:
        fields: dict[str, JsonValue] = {"fullReflectionRebuild": True} if full else {}
        self.driver.append(fact(self.name(), self.anchor(back // 3), "flush.requested", **fields))

    @rule(back=SMALL)
    def compaction_is_requested(self, back: int) -> None:
        self.driver.append(fact(self.name(), self.anchor(back // 3), "compact.requested"))

    @rule(back=SMALL, start=st.booleans(), n=st.integers(0, 1))
    def run_starts_or_ends(self, back: int, start: bool, n: int) -> None:
        name = "run.started" if start else "run.finished"
        self.driver.append(fact(self.name(), self.anchor(back // 3), name, runId=f"run{n}"))

    @rule(
        back=SMALL,
        observe=st.sampled_from([10, 40, 500]),
        reflect=st.sampled_from([6, 30]),
        passive=st.booleans(),
    )
    def settings_change(self, back: int, observe: int, reflect: int, passive: bool) -> None:
        self.driver.append(
            settings(
                self.name(),
                self.anchor(back // 3),
                observe=observe,
                reflect=reflect,
                compact=120,
                recent=2,
                target=5,
                pool=8,
                passive=passive and observe == 500,
            )
        )

    @rule(
        back=SMALL,
        n=st.integers(0, 30),
        what=st.sampled_from(["entry", "memory", "unknown"]),
        corrected=st.booleans(),
    )
    def something_is_invalidated(self, back: int, n: int, what: str, corrected: bool) -> None:
        log, known = self.log(), self.memory_ids()
        ids: list[JsonValue] = [
            {
                "entry": log[n % len(log)].id if log else "nobody",
                "memory": known[n % len(known)],
                "unknown": f"e{self.n_entries + 2}",
            }[what]
        ]
        reason = "corrected" if corrected else "revoked"
        self.driver.append(
            fact(self.name(), self.anchor(back), "sources.invalidated", ids=ids, reason=reason)
        )

    @rule(back=SMALL, what=st.sampled_from(["opened", "entered", "left", "closed"]), n=SMALL)
    def scopes_change(self, back: int, what: str, n: int) -> None:
        scope = f"scope{n % 2}"
        fields: dict[str, JsonValue] = {"id" if what == "opened" else "scopeId": scope}
        if n < 2:
            self.driver.append(fact(self.name(), self.anchor(back // 3), f"scope.{what}", **fields))

    # Workers, crashes.

    @rule(limit=st.integers(1, 3))
    def workers_run(self, limit: int) -> None:
        for task in self.driver.due(limit):
            result = self.driver.result_of(task)
            if result is None:
                continue
            self.in_flight.append((task, result))
            if isinstance(task.effect, Run):
                known = self.runs.setdefault(task.effect.run_id, task.effect)
                assert same_run(known, task.effect), "two runs have one id"

    @rule(mood=st.sampled_from(["works", "works", "fails", "refuses"]), minutes=st.integers(0, 11))
    def models_have_their_moods(self, mood: str, minutes: int) -> None:
        self.mood = mood
        self.driver.clock.at_ms += minutes * 60_000

    @precondition(lambda self: self.in_flight)
    @rule(n=st.integers(0, 30), twice=st.booleans())
    def result_lands(self, n: int, twice: bool) -> None:
        task, result = self.in_flight.pop(n % len(self.in_flight))
        self.driver.deliver(task, result)
        self.delivered.append(result)
        if twice:
            self.driver.log.put(KEY, encode(result))

    @precondition(lambda self: self.delivered or self.in_flight)
    @rule(
        n=st.integers(0, 30),
        what=st.sampled_from(["base", "anchor", "seen", "covers", "through", "nothing"]),
        back=SMALL,
    )
    def result_is_forged(self, n: int, what: str, back: int) -> None:
        """A worker with another state, or another idea of it, appends under an id of its own."""
        results = [result for _, result in self.in_flight] or self.delivered
        result = results[n % len(results)]
        if not isinstance(result.data, dict):
            return
        data, ids = dict(result.data), [entry.id for entry in self.log()]
        other = ids[-1 - back % len(ids)] if ids else None
        parent = result.parent
        match what:
            case "base":
                data["base"] = other if back else None
            case "anchor":
                parent = self.anchor(back)
            case "seen":
                data.pop("seen", None)
            case "covers":
                data["coversUpToId"] = self.anchor(back) or ""
            case "through":
                data["through"], data["throughEntryId"] = other, self.anchor(back) or ""
                data["foldedThrough"] = {"observations": other}
        forged = custom(
            f"om:observer:{self.n_entries:024x}",
            parent,
            data,
            kind=result.kind,
            summary=result.summary,
            origin="worker",
        )
        self.n_entries += 1
        self.driver.append(forged)

    @rule()
    def everything_settles(self) -> None:
        """What is in flight is lost; whoever owns the session decides it again."""
        self.in_flight.clear()
        self.driver.reopen()
        self.driver.settle()

    @rule(n_records=st.integers(1, 7))
    def a_batch_is_folded(self, n_records: int) -> None:
        self.driver.fold(n_records)

    @rule()
    def the_process_restarts(self) -> None:
        self.in_flight.clear()
        self.driver.reopen()

    @rule()
    def a_commit_fails(self) -> None:
        if self.driver.log.end(0) > self.driver.processor.next_offset:
            self.driver.store.fail_next = True
            with pytest.raises(OSError, match="no space"):
                self.driver.fold()

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        processor = self.driver.processor
        n_folded = processor.next_offset
        if not n_folded:
            return
        log = entries_of(self.driver.log.records[:n_folded], KEY)
        session = self.driver.session()
        found = differences(session, log, PARKED_FOR)
        assert not found, "\n".join(found)
        model = build(log, PARKED_FOR)
        for leaf in model.leaves():
            assert not tiling_faults(walk(model, leaf))
        unequal = reading_differences(session, model)
        assert not unequal, "\n".join(unequal)

    @invariant()
    def asking_twice_asks_for_the_same(self) -> None:
        ours, theirs = self.driver.processor.session(KEY), self.driver.session()
        assert asked(ours) == asked(ours) == asked(theirs)

    def teardown(self) -> None:
        try:
            self.settles_and_refolds()
        finally:
            self.patch.undo()

    def settles_and_refolds(self) -> None:
        driver = self.driver
        self.mood = "works"
        for _ in range(2):
            driver.reopen()
            driver.settle()
            driver.clock.at_ms += 11 * 60_000  # whatever is parked is tried again
        whole = digest(refolded(driver.log))
        assert driver.digest() == whole, "the live rows are not those of one batch"
        assert digest(refolded(driver.log, 3, max_sessions=1)) == whole
        driver.reopen()
        assert driver.settle() == 0, "a settled session asks for more after a restart"


def asked(session: Session) -> list[object]:
    """Return what every leaf owes its workers."""
    return [
        duties.decide(session, session.leaf(segment), worker)
        for segment in session.segments()
        for worker in duties.WORKERS
    ]


def chat_like(entry: Entry, **changes: object) -> Entry:
    return msgspec.structs.replace(entry, **changes)


def same_run(one: object, other: object) -> bool:
    """Say whether two effects with one id are one run: all but the leaf that asks is equal."""
    assert isinstance(one, Run)
    assert isinstance(other, Run)
    return msgspec.structs.replace(one, segment=0) == msgspec.structs.replace(other, segment=0)


TestSession = SessionMachine.TestCase
TestSession.settings = hypothesis_settings(
    max_examples=400 if THOROUGH else 40,
    stateful_step_count=60 if THOROUGH else 40,
    report_multiple_bugs=False,
)
