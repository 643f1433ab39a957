"""The histories of pitfalls.md that concern the fold and the deciders, each as one test.

State that had a log of its own (findings 1 to 3) is tests/engine/test_histories.py.
"""

import msgspec
import pytest
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory import duties, items, reading, tree
from ombus_streams.memory.effects import (
    EndFlush,
    RefuseCompaction,
    RunCompactor,
    RunDropper,
    RunObserver,
    RunReflector,
)
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.items import ACTIVE
from ombus_streams.memory.session import Session, view
from ombus_streams.runtime.provider import ModelRequest, TurnFailed
from ombus_streams.runtime.scheduler import MAX_ATTEMPTS, Task

from tests.memory.model.compare import differences, entries_of
from tests.support.engine import KEY, Driver, diligent, worker
from tests.support.sessions import (
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

PARENT_OF: dict[str, str | None] = dict(zip("bcdefghij", "abcdefghi", strict=True)) | {"a": None}


def driver_with(*entries: Entry, **kept: int | str | bool) -> Driver:
    """Return a driver over a session whose thresholds are those given, else out of reach."""
    driver = Driver()
    driver.append(settings("settings", None, **kept), *entries)  # type: ignore[arg-type]
    driver.catch_up()
    return driver


def said(names: str, tokens: int = 10) -> list[Entry]:
    """Return a chain of messages, each of about ``tokens`` tokens."""
    return [chat(name, PARENT_OF[name], tokens=tokens) for name in names]


def leaf_of(driver: Driver, tip: str) -> tuple[Session, LeafHead]:
    session = driver.session()
    place = session.place_of(tip)
    assert place is not None
    return session, session.leaf(place.segment)


def contents(driver: Driver, tip: str) -> list[str]:
    """Return what the leaf has in sight."""
    session, leaf = leaf_of(driver, tip)
    return [item.content for item in reading.visible(session, leaf).observations]


def gists(driver: Driver, tip: str) -> list[str]:
    session, leaf = leaf_of(driver, tip)
    return [item.content for item in reading.visible(session, leaf).reflections]


def only(tasks: list[Task]) -> Task:
    assert len(tasks) == 1, [task.effect for task in tasks]
    return tasks[0]


def result_of(driver: Driver, task: Task) -> Entry:
    result = driver.result_of(task)
    assert result is not None
    return result


def body(entry: Entry) -> JsonObject:
    assert isinstance(entry.data, dict)
    return entry.data


def forged(name: str, like: Entry, **changes: JsonValue) -> Entry:
    """Return another worker's record like this one, with other words in its body."""
    data: JsonValue = {**body(like), **changes}
    return msgspec.structs.replace(like, id=f"om:observer:{name}", data=data)


def effects(driver: Driver, kind: type) -> list[object]:
    return [effect for effect in driver.effects if isinstance(effect, kind)]


def fits_the_model(driver: Driver) -> None:
    found = differences(driver.session(), entries_of(driver.log.records, KEY), 1_000)
    assert not found, "\n".join(found)


# Finding 4: overlapping spans.


def test_of_a_flush_and_a_threshold_run_over_one_span_the_later_record_folds_to_nothing() -> None:
    driver = driver_with(*said("abcdef"), observe=70)
    driver.append(fact("flush", "f", "flush.requested"))
    driver.catch_up()
    flush_run = result_of(driver, only(driver.due()))
    other = Driver()
    other.append(settings("settings", None, observe=70), *said("abcdefg"))
    other.catch_up()
    threshold_run = result_of(other, only(other.due()))

    driver.append(*said("g"), threshold_run, flush_run)
    driver.catch_up()

    _, leaf = leaf_of(driver, "g")
    assert (leaf.coverage_id, leaf.rejections.stale_base) == ("g", 1)
    assert contents(driver, "g").count("mark-a. said") == 1
    fits_the_model(driver)


def test_a_lower_threshold_while_a_run_is_under_way_never_makes_two_records_overlap() -> None:
    driver = driver_with(*said("abcdefghij"), observe=100)
    first = result_of(driver, only(driver.due()))
    driver.append(settings("lower", "j", observe=50))
    driver.reopen()
    driver.catch_up()
    second = result_of(driver, only(driver.due()))

    driver.append(second, first)
    driver.settle()

    _, leaf = leaf_of(driver, "j")
    assert leaf.coverage_id == "j"
    assert first.id == second.id, "the obligation stands, whatever settings say later"
    fits_the_model(driver)


def test_an_obligation_is_worked_off_in_chunks_although_the_rest_is_below_the_threshold() -> None:
    driver = driver_with(*said("abcdefghij"), observe=100, chunk=20)

    driver.settle()

    spans = [effect.source_ids for effect in effects(driver, RunObserver)]  # type: ignore[attr-defined]
    assert spans == [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j")]
    assert leaf_of(driver, "j")[1].coverage_id == "j"


def test_a_base_is_judged_in_each_view_not_where_the_record_is_anchored() -> None:
    driver = driver_with(*said("abcde"))
    long = observations(observed("of a to e", "a", "e"), covers="e", base=None)
    short = observations(observed("of a to c", "a", "c"), covers="c", base=None)
    driver.append(custom("long", "e", long), custom("short", "c", short))
    driver.append(chat("x", "c", tokens=10))
    driver.catch_up()

    assert contents(driver, "e") == ["of a to e"]
    assert contents(driver, "x") == ["of a to c"], "the anchor path of c knows nothing of long"
    assert leaf_of(driver, "e")[1].rejections.stale_base == 1
    fits_the_model(driver)


def test_messages_that_arrive_while_a_run_is_under_way_ask_for_the_same_run() -> None:
    driver = driver_with(*said("abcde"), observe=50)
    session, leaf = leaf_of(driver, "e")
    first = duties.decide(session, leaf, "observer")

    driver.append(*said("fghij"))
    driver.catch_up()

    session, leaf = leaf_of(driver, "j")
    assert duties.decide(session, leaf, "observer") == first
    assert isinstance(first, RunObserver)
    assert first.source_ids == tuple("abcde")


# Finding 5: what is observed while a reflection runs.


def test_observations_that_land_while_a_reflection_runs_are_reflected_by_the_next() -> None:
    driver = driver_with(*said("abcd"), observe=20, reflect=6)
    first = only(driver.due())
    driver.deliver(first, result_of(driver, first))
    driver.catch_up()
    tasks = {task.effect.worker: task for task in driver.due()}
    reflection = result_of(driver, tasks["reflector"])
    driver.deliver(tasks["observer"], result_of(driver, tasks["observer"]))
    driver.catch_up()

    driver.deliver(tasks["reflector"], reflection)
    driver.catch_up()

    _, leaf = leaf_of(driver, "d")
    assert leaf.n_uncovered == 2, "the second record stands before the reflection, unread"
    driver.settle()
    assert len(effects(driver, RunReflector)) == 2
    assert leaf_of(driver, "d")[1].n_uncovered == 0
    fits_the_model(driver)


# Finding 6: run ids.


def test_a_full_rebuild_over_the_same_observations_is_another_run_than_the_last() -> None:
    driver = driver_with(*said("ab"), observe=20, reflect=6)
    driver.settle()

    driver.tell(fact("flush", "b", "flush.requested", fullReflectionRebuild=True))

    first, second = effects(driver, RunReflector)
    assert isinstance(first, RunReflector)
    assert isinstance(second, RunReflector)
    assert first.observation_ids == second.observation_ids
    assert first.run_id != second.run_id
    assert not leaf_of(driver, "b")[1].flushes, "the request is satisfied"


def test_two_droppers_over_one_pool_have_two_ids_after_two_reflections() -> None:
    def keeps_all(request: ModelRequest) -> object:
        return [] if request.worker == "dropper" else diligent(request)

    driver = Driver(worker(keeps_all))
    driver.tell(settings("settings", None, observe=20, reflect=6, target=1), *said("ab"))
    driver.tell(fact("flush", "b", "flush.requested", fullReflectionRebuild=True))

    first, second = effects(driver, RunDropper)
    assert isinstance(first, RunDropper)
    assert isinstance(second, RunDropper)
    assert (first.observation_ids, first.run_id != second.run_id) == (second.observation_ids, True)


def test_forks_whose_pools_share_their_ends_have_runs_of_their_own() -> None:
    driver = driver_with(*said("abc"), reflect=12)
    shared = observed("x", "a"), observed("z", "b")
    for tip, own in (("d", "y"), ("f", "w")):
        driver.append(chat(tip, "c", tokens=10))
        driver.append(
            custom(
                f"o{tip}", tip, observations(shared[0], observed(own, tip), shared[1], covers=tip)
            )
        )
    driver.catch_up()

    runs = [task.effect for task in driver.due()]

    assert all(isinstance(run, RunReflector) for run in runs)
    assert len({run.run_id for run in runs if isinstance(run, RunReflector)}) == 2


def test_two_answers_to_one_run_are_counted_and_are_no_dead_letter() -> None:
    driver = driver_with(*said("ab"), observe=20)
    task = only(driver.due())
    result = result_of(driver, task)
    other = msgspec.structs.replace(result, data={**body(result), "observations": []})

    driver.append(result, other)
    driver.catch_up()

    assert driver.session().head.n_repeated_runs == 1
    assert not driver.store.emitted
    assert len(contents(driver, "b")) == 2


def test_a_run_whose_record_came_too_early_for_a_branch_is_asked_for_anew_there() -> None:
    """An import covers `a` on one branch alone, so `b` is observed there from a base of its own."""
    driver = driver_with(*said("ab", tokens=25), observe=20)
    driver.append(custom("imported", "b", observations(covers="a"), side=False))
    driver.append(chat("x", "b", tokens=5))

    driver.settle()

    for tip in ("imported", "x"):
        assert leaf_of(driver, tip)[1].coverage_id == "b"
        assert contents(driver, tip).count("mark-b. said") == 1
    assert contents(driver, "x") == ["mark-a. said", "mark-b. said"]
    assert leaf_of(driver, "x")[1].rejections.stale_base == 1
    fits_the_model(driver)


# Finding 7: runaway loops.


def test_a_compaction_does_not_earn_the_next_by_its_own_weight() -> None:
    driver = driver_with(*said("abcdefghij", tokens=30), observe=60, compact=120, recent=2)

    driver.settle()
    n_compactions = len(effects(driver, RunCompactor))
    driver.settle()

    assert n_compactions
    assert len(effects(driver, RunCompactor)) == n_compactions
    assert leaf_of(driver, "j")[1].chain_tokens < 120


def test_a_kept_backlog_over_the_threshold_earns_no_compaction_that_moves_nothing() -> None:
    driver = driver_with(*said("abcdef", tokens=30), observe=1_000, compact=60, recent=2)
    driver.append(custom("o", "a", observations(observed("fact", "a"), covers="a")))

    driver.settle()

    (run,) = effects(driver, RunCompactor)
    assert isinstance(run, RunCompactor)
    assert run.through_id == "a"
    assert leaf_of(driver, "f")[1].chain_tokens > 60


def test_a_drop_that_does_not_reach_its_target_is_asked_for_once_per_reflection() -> None:
    driver = Driver(worker(lambda r: [] if r.worker == "dropper" else diligent(r)))
    driver.tell(settings("settings", None, observe=20, reflect=6, target=1), *said("abcdefgh"))

    n_reflections = leaf_of(driver, "h")[1].n_reflection_records

    assert n_reflections
    assert len(effects(driver, RunDropper)) == n_reflections
    assert leaf_of(driver, "h")[1].active_tokens > 1


def test_a_crashed_agents_run_lapses_by_append_time_and_the_compactor_goes_on() -> None:
    driver = driver_with(*said("abcdef", tokens=30), observe=60, compact=100, recent=1)
    driver.append(fact("run", "f", "run.started", runId="r"))
    driver.settle()
    assert not effects(driver, RunCompactor)

    driver.clock.at_ms += 3_600_000
    driver.tell(chat("g", "f", tokens=10))

    assert effects(driver, RunCompactor)


# Finding 8: a drop and what rests on it.


def test_a_pruned_observation_leaves_the_reflection_that_replaced_it() -> None:
    driver = driver_with(*said("ab"), observe=20, reflect=6, target=1)

    driver.settle()

    assert contents(driver, "b") == []
    assert gists(driver, "b") == ["gist mark-a. mark-b."]


def test_a_drop_decided_before_a_scope_was_opened_is_void_after_it() -> None:
    driver = driver_with(*said("ab"), observe=20, reflect=6, target=1)
    for _ in range(2):
        task = only(driver.due())
        driver.deliver(task, result_of(driver, task))
        driver.catch_up()
    task = only(driver.due())
    drop = result_of(driver, task)
    driver.append(fact("open", "b", "scope.opened", id="work"))

    driver.deliver(task, drop)
    driver.settle()

    session, leaf = leaf_of(driver, "b")
    assert isinstance(task.effect, RunDropper)
    assert leaf.rejections.superseded == 1
    assert len(list(items.observations(session, leaf, *ACTIVE))) == 2


def test_a_drop_is_void_after_a_newer_reflection() -> None:
    driver = driver_with(*said("ab"), observe=20, reflect=6, target=1)
    for _ in range(2):
        task = only(driver.due())
        driver.deliver(task, result_of(driver, task))
        driver.catch_up()
    task = only(driver.due())
    drop = result_of(driver, task)
    driver.append(custom("newer", "b", reflections(reflected("newer", "0" * 12))))

    driver.deliver(task, drop)
    driver.catch_up()

    assert leaf_of(driver, "b")[1].rejections.stale_base == 1
    fits_the_model(driver)


# Finding 9: invalidation.


def test_what_is_revoked_on_one_leaf_is_gone_on_every_other_old_or_new() -> None:
    driver = driver_with(*said("abc"), observe=30)
    driver.settle()
    driver.append(chat("x", "b", tokens=10))

    driver.append(fact("revoke", "x", "sources.invalidated", ids=["a"], reason="revoked"))
    driver.append(chat("y", "c", tokens=10), chat("z", "b", tokens=10), chat("w", "c", tokens=10))
    driver.settle()

    for tip in "xyzw":
        assert not any("mark-a" in line for line in contents(driver, tip)), tip
        session, leaf = leaf_of(driver, tip)
        assert "mark-a" not in "".join(b.content for b in reading.context(session, leaf, keep=8))
    fits_the_model(driver)


def test_a_run_whose_source_is_revoked_meanwhile_is_void_and_decided_again_without_it() -> None:
    driver = driver_with(*said("abc"), observe=30)
    task = only(driver.due())
    result = result_of(driver, task)
    driver.append(fact("revoke", "c", "sources.invalidated", ids=["a"], reason="revoked"))

    driver.deliver(task, result)
    driver.settle()

    _, leaf = leaf_of(driver, "c")
    assert leaf.rejections.invalidated == 1
    assert contents(driver, "c") == ["mark-b. said", "mark-c. said"]
    assert effects(driver, RunObserver)[-1].source_ids == ("b", "c")  # type: ignore[attr-defined]
    fits_the_model(driver)


def test_a_span_with_an_earlier_invalidation_ends_in_one_run() -> None:
    driver = driver_with(fact("revoke", None, "sources.invalidated", ids=["b"]), observe=30)

    driver.tell(*said("abc"))

    assert len(effects(driver, RunObserver)) == 1
    assert leaf_of(driver, "c")[1].coverage_id == "c"


def test_a_run_that_was_decided_before_a_revocation_never_sees_the_revoked_text() -> None:
    driver = driver_with(*said("abc"), observe=30)
    task = only(driver.due())

    driver.append(fact("revoke", "c", "sources.invalidated", ids=["a"], reason="revoked"))
    driver.catch_up()
    driver.result_of(task)

    asked = repr(driver.provider.requests)  # type: ignore[attr-defined]
    assert "mark-a" not in asked


@pytest.mark.parametrize("name", ["source", "observation", "reflection"])
def test_a_compaction_says_nothing_that_was_invalidated_before_it(name: str) -> None:
    driver = driver_with(*said("abcd", tokens=30), observe=60, reflect=6, recent=1)
    driver.settle()
    session, leaf = leaf_of(driver, "d")
    held = reading.visible(session, leaf)
    ids = {
        "source": "a",
        "observation": held.observations[0].id,
        "reflection": held.reflections[0].id,
    }

    driver.tell(fact("revoke", "d", "sources.invalidated", ids=[ids[name]]))
    driver.tell(fact("compact", "d", "compact.requested"))

    (record,) = [entry for entry in entries_of(driver.log.records, KEY) if entry.summary]
    assert f"[{ids[name]}]" not in str(record.summary)
    if name != "reflection":
        assert "mark-a" not in str(record.summary) + str(record.data)


def test_a_compaction_hit_by_a_later_invalidation_is_shown_without_it() -> None:
    driver = driver_with(*said("abcd", tokens=30), observe=60, reflect=6, recent=1)
    driver.tell(fact("compact", "d", "compact.requested"))

    driver.tell(fact("revoke", "d", "sources.invalidated", ids=["a"], reason="deleted"))

    session, leaf = leaf_of(driver, "d")
    assert not any("mark-a" in line for line in contents(driver, "d") + gists(driver, "d"))
    for block in reading.context(session, leaf, keep=8):
        assert "mark-a" not in block.content


def test_revoked_sources_that_cannot_all_be_read_are_revoked_all_the_same() -> None:
    driver = driver_with(*said("ab"), observe=20)
    driver.settle()

    driver.tell(fact("revoke", "b", "sources.invalidated", ids=[7, "a", None]))

    assert contents(driver, "b") == ["mark-b. said"]


# Finding 11: the bind travels with the record.


def test_memory_is_bound_where_its_last_source_was_said_not_where_the_run_ended() -> None:
    driver = driver_with(observe=20)
    driver.append(
        fact("open-a", None, "scope.opened", id="work-a"),
        fact("open-b", None, "scope.opened", id="work-b"),
        fact("in-a", None, "scope.entered", scopeId="work-a"),
        *said("ab"),
        fact("out-a", "b", "scope.left", scopeId="work-a"),
        fact("in-b", "b", "scope.entered", scopeId="work-b"),
    )

    driver.settle()

    session, leaf = leaf_of(driver, "b")
    bound = reading.bound_scopes(session, leaf).refs_by_scope_id
    assert len(bound["work-a"]) == 2
    assert "work-b" not in bound


def test_many_binds_do_not_stop_memory_from_being_bound() -> None:
    driver = driver_with(fact("open", None, "scope.opened", id="work"), observe=20)
    refs: list[JsonValue] = [f"om:{n:012x}" for n in range(4_096)]
    driver.append(
        fact("bind", None, "scope.bound", scopeId="work", refs=refs),
        fact("in", None, "scope.entered", scopeId="work"),
        *said("ab"),
    )

    driver.settle()

    session, leaf = leaf_of(driver, "b")
    assert len(reading.scoped(session, leaf, reading.visible(session, leaf)).observations) == 2


# Finding 12: branches.


def test_a_child_that_arrives_before_its_parent_is_in_its_view() -> None:
    driver = driver_with(chat("d", None), chat("f", "e"), chat("e", "d"))

    session, leaf = leaf_of(driver, "f")

    assert [ordinal for ordinal, row in view(session, leaf.lineage) if not row.side] == [2, 3, 4]
    assert session.leaf(session.head.default_segment).tip_id == "f"


def test_an_orphan_becomes_a_root_after_a_thousand_entries_and_never_the_default_leaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree, "PARKED_FOR", 5)
    driver = driver_with(*said("a"), chat("orphan", "nobody"), chat("child", "orphan"))
    driver.append(*(fact(f"label{n}", "a", "label.set") for n in range(3)))
    driver.catch_up()
    assert driver.session().head.n_orphans == 0

    driver.append(fact("label3", "a", "label.set"))
    driver.catch_up()

    session = driver.session()
    assert (session.head.n_orphans, session.head.n_parked) == (1, 0)
    assert session.leaf(session.head.default_segment).tip_id == "a"
    assert leaf_of(driver, "child")[1].tip_id == "child"


def test_a_parent_that_arrives_after_its_child_was_given_up_does_not_join_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree, "PARKED_FOR", 2)
    driver = driver_with(*said("a"), chat("orphan", "late"))
    driver.append(fact("x", "a", "label.set"), fact("y", "a", "label.set"))
    driver.catch_up()

    driver.append(chat("late", "a"))
    driver.catch_up()

    session, leaf = leaf_of(driver, "orphan")
    assert [row.anchor for _, row in view(session, leaf.lineage) if not row.side] == [
        leaf.tip_ordinal
    ]


def test_two_agents_on_two_branches_are_both_served() -> None:
    driver = driver_with(*said("ab"), observe=30)
    for n in range(4):
        driver.append(chat(f"x{n}", f"x{n - 1}" if n else "b", tokens=10))
        driver.append(chat(f"y{n}", f"y{n - 1}" if n else "b", tokens=10))

    driver.settle()

    for tip in ("x3", "y3"):
        assert leaf_of(driver, tip)[1].coverage_id == f"{tip[0]}3"
    fits_the_model(driver)


def test_a_run_over_the_fork_point_is_not_inherited_and_the_prefix_is_observed_again() -> None:
    driver = driver_with(*said("abcd"), observe=40)
    driver.settle()

    driver.tell(chat("x", "b", tokens=20))

    assert contents(driver, "x") == ["mark-a. said", "mark-b. said", "mark-x. said"]
    assert contents(driver, "d") == [f"mark-{name}. said" for name in "abcd"]


def test_equal_memory_on_two_branches_is_dropped_on_one_alone() -> None:
    driver = driver_with(*said("ab"))
    same = observed("same", "a")
    for tip in ("x", "y"):
        driver.append(chat(tip, "b"), custom(f"o{tip}", tip, observations(same, covers=tip)))

    driver.append(custom("drop", "x", drops(same["id"])))
    driver.catch_up()

    assert (contents(driver, "x"), contents(driver, "y")) == ([], ["same"])


def test_control_records_of_one_branch_do_not_steer_its_sibling() -> None:
    driver = driver_with(*said("ab"), chat("x", "b", tokens=10), chat("y", "b", tokens=10))

    driver.append(fact("open", "x", "scope.opened", id="work"), settings("own", "y", observe=30))
    driver.settle()

    assert leaf_of(driver, "x")[1].n_scopes == 1
    assert leaf_of(driver, "y")[1].n_scopes == 0
    assert leaf_of(driver, "x")[1].n_pending == 3
    assert leaf_of(driver, "y")[1].n_pending == 0


# Finding 13: compactions.


def test_a_compaction_does_not_leak_into_a_fork_before_it() -> None:
    driver = driver_with(*said("abcdef", tokens=30), observe=90, recent=1)
    driver.settle()
    driver.tell(fact("compact", "f", "compact.requested"))

    driver.tell(chat("x", "b", tokens=10))

    assert leaf_of(driver, "f")[1].compaction_id is not None
    assert leaf_of(driver, "x")[1].compaction_id is None
    assert not any("mark-f" in line for line in contents(driver, "x"))


def test_a_record_that_lands_between_a_compactions_snapshot_and_its_place_is_in_sight() -> None:
    driver = driver_with(*said("abcdef", tokens=30), observe=60, recent=1)
    first = only(driver.due())
    driver.deliver(first, result_of(driver, first))
    driver.append(fact("compact", "f", "compact.requested"))
    driver.catch_up()
    tasks = {task.effect.worker: task for task in driver.due()}
    snapshot = result_of(driver, tasks["compactor"])
    driver.deliver(tasks["observer"], result_of(driver, tasks["observer"]))
    driver.deliver(tasks["compactor"], snapshot)
    driver.catch_up()

    assert leaf_of(driver, "f")[1].compaction_id == snapshot.id
    assert contents(driver, "f") == [f"mark-{name}. said" for name in "abcd"]
    fits_the_model(driver)


def test_the_first_record_that_lands_beside_a_compaction_without_records_is_in_sight() -> None:
    driver = driver_with(*said("ab", tokens=30), recent=0)
    memory = payload(observed("imported", "a"))
    driver.append(compaction("imported", "b", {"memory": memory}, side=False))
    driver.append(custom("cover", "imported", observations(covers="imported")))
    folded: JsonObject = {"memory": memory, "base": "imported", "throughEntryId": "imported"}
    own = custom("own", "imported", observations(observed("landed", "b"), covers=None))

    driver.append(own, compaction("om:compactor:1", "imported", {**folded, "foldedThrough": {}}))
    driver.catch_up()

    assert contents(driver, "imported") == ["imported", "landed"]


def test_an_older_compaction_that_lands_after_a_newer_one_is_void() -> None:
    driver = driver_with(*said("abcdef", tokens=30), observe=60, recent=1)
    first = only(driver.due())
    driver.deliver(first, result_of(driver, first))
    driver.append(fact("one", "f", "compact.requested"))
    driver.catch_up()
    older = result_of(driver, next(t for t in driver.due() if isinstance(t.effect, RunCompactor)))
    driver.reopen()
    driver.settle()

    driver.tell(fact("two", "f", "compact.requested"))
    newer = leaf_of(driver, "f")[1].compaction_id

    driver.append(forged("older", older))
    driver.catch_up()

    _, leaf = leaf_of(driver, "f")
    assert (leaf.compaction_id, leaf.through_id) == (newer, "e")
    assert leaf.rejections.stale_base == 1
    fits_the_model(driver)


def test_a_compaction_keeps_few_ids_however_long_the_backlog_is() -> None:
    driver = driver_with(*said("ab", tokens=30), observe=60, recent=1)
    driver.settle()
    parent = "b"
    for n in range(300):
        driver.append(chat(f"m{n}", parent, tokens=1))
        parent = f"m{n}"
    driver.append(settings("far", parent, observe=100_000, recent=1))

    driver.tell(fact("compact", parent, "compact.requested"))

    (record,) = [entry for entry in entries_of(driver.log.records, KEY) if entry.summary]
    assert body(record)["throughEntryId"] == "b"
    assert body(record)["keepEntryIds"] == []


def test_a_ledger_of_nothing_but_hidden_reflections_is_no_reason_to_compact() -> None:
    driver = driver_with(*said("abcd", tokens=30), recent=1)
    item = observed("fact", "a")
    gist = reflections(reflected("gist", str(item["id"])))
    driver.append(custom("o", "b", observations(item, covers="b")), custom("r", "b", gist))
    driver.append(fact("revoke", "d", "sources.invalidated", ids=["a"]))

    driver.tell(fact("compact", "d", "compact.requested"))

    (refusal,) = effects(driver, RefuseCompaction)
    assert isinstance(refusal, RefuseCompaction)
    assert refusal.reason == "nothing_folded"


def test_a_compaction_lists_only_the_dropped_ids_its_own_reflections_name() -> None:
    driver = driver_with(*said("abcd", tokens=30), observe=30, reflect=6, target=1, recent=1)
    driver.settle()
    driver.append(custom("many", "d", drops(*(f"{n:012x}" for n in range(500)))))

    driver.tell(fact("compact", "d", "compact.requested"))

    record = [entry for entry in entries_of(driver.log.records, KEY) if entry.summary][-1]
    memory = body(record)["memory"]
    assert isinstance(memory, dict)
    dropped = memory["droppedObservationIds"]
    assert isinstance(dropped, list)
    assert 0 < len(dropped) <= 4


def test_reflections_over_the_payloads_cap_refuse_a_compaction_and_stop_nobody() -> None:
    driver = driver_with(*said("abcd", tokens=30), observe=60, recent=1)
    many = [reflected(f"{n} " + "x" * 900, "0" * 12) for n in range(700)]
    for start in range(0, 700, 350):
        driver.append(custom(f"many{start}", "a", reflections(*many[start : start + 350])))

    driver.tell(fact("compact", "d", "compact.requested"))

    answers = [
        entry
        for entry in entries_of(driver.log.records, KEY)
        if "compact.failed" in entry.data_type
    ]
    assert len(answers) == 1
    assert not leaf_of(driver, "d")[1].compact_requests


# Finding 20: poison spans, the order of a flush, and the backlog.


def test_a_span_refused_for_good_is_halved_down_to_the_one_source_which_is_passed_over() -> None:
    def refuses_c(request: ModelRequest) -> object:
        if any(source.id == "c" for source in request.material.sources):
            return [TurnFailed(message="content policy", is_refusal=True)]
        return diligent(request)

    driver = Driver(worker(refuses_c))

    driver.tell(settings("settings", None, observe=80), *said("abcdefgh"))

    assert leaf_of(driver, "h")[1].coverage_id == "h"
    assert contents(driver, "h") == [f"mark-{name}. said" for name in "abdefgh"]
    reasons = [
        body(entry)
        for entry in entries_of(driver.log.records, KEY)
        if entry.data_type == "om.observations.recorded" and "reason" in body(entry)
    ]
    assert [record["coversUpToId"] for record in reasons] == ["c"]


def test_refusals_are_remembered_over_a_restart() -> None:
    def refuses(request: ModelRequest) -> object:
        return [TurnFailed(message="content policy", is_refusal=True)]

    driver = Driver(worker(refuses))
    driver.append(settings("settings", None, observe=20), *said("ab"))
    driver.catch_up()
    for _ in range(2):
        driver.result_of(only(driver.due()))
        driver.reopen()

    assert only(driver.due()).effect.reason == "refused"  # type: ignore[union-attr]


def test_each_stage_of_a_flush_waits_for_the_one_before() -> None:
    driver = driver_with(*said("ab"))
    driver.append(fact("flush", "b", "flush.requested"))
    driver.catch_up()

    order: list[str] = []
    while tasks := driver.due():
        task = only(tasks)
        order.append(type(task.effect).__name__)
        driver.deliver(task, result_of(driver, task))
        driver.catch_up()

    assert order == ["RunObserver", "RunReflector", "EndFlush"]


def test_a_flush_of_a_shared_prefix_ends_when_every_branch_has_covered_it() -> None:
    driver = driver_with(*said("abcd"))
    driver.append(custom("over", "d", observations(observed("of all", "a"), covers="d", base=None)))
    driver.append(chat("x", "c", tokens=10))
    driver.append(fact("flush", "c", "flush.requested"))
    driver.catch_up()
    slow = leaf_of(driver, "x")[1].segment
    held: list[Task] = []
    while tasks := driver.due():
        for task in tasks:
            if task.slot[1] == slow:
                held.append(task)
            else:
                driver.deliver(task, result_of(driver, task))
        driver.catch_up()
    assert not effects(driver, EndFlush), "the branch of x has not been covered"

    for task in held:
        driver.deliver(task, result_of(driver, task))
    driver.settle()

    assert effects(driver, EndFlush)
    assert contents(driver, "x") == [f"mark-{name}. said" for name in "abc"]
    assert not leaf_of(driver, "x")[1].flushes


def test_a_flush_of_a_leaf_whose_observer_is_parked_ends_as_failed() -> None:
    def fails(request: ModelRequest) -> object:
        return [TurnFailed(message="overloaded", code=503)]

    driver = Driver(worker(fails))
    driver.append(settings("settings", None), *said("ab"), fact("flush", "b", "flush.requested"))
    for _ in range(MAX_ATTEMPTS):
        driver.settle()
        driver.clock.at_ms += 60_000
    driver.settle()

    answers = [
        body(entry)
        for entry in entries_of(driver.log.records, KEY)
        if entry.data_type == "om.flush.failed"
    ]
    assert [answer["flushId"] for answer in answers] == ["flush"]
    assert not leaf_of(driver, "b")[1].flushes


def test_a_flush_does_not_fail_because_the_compactor_is_parked() -> None:
    driver = driver_with(*said("ab"))
    task = Task((KEY, 1, "compactor"), RefuseCompaction(
        tenant_id="t", session_id="s", segment=1, request_id="x", reason="y"
    ))  # fmt: skip
    for _ in range(MAX_ATTEMPTS):
        driver.scheduler.failed(task.slot, task.effect, RuntimeError("too large"), 0)

    driver.tell(fact("flush", "b", "flush.requested"))

    ends = effects(driver, EndFlush)
    assert [end.failure for end in ends if isinstance(end, EndFlush)] == [None]


def test_a_head_does_not_grow_with_the_backlog() -> None:
    driver = driver_with()
    parent = None
    for n in range(200):
        driver.append(chat(f"m{n}", parent, tokens=10))
        parent = f"m{n}"
        if n == 20:
            driver.catch_up()
            small = len(msgspec.msgpack.encode(driver.session().leaf(1)))
    driver.catch_up()

    assert len(msgspec.msgpack.encode(driver.session().leaf(1))) <= small + 16


# The second pass.


def test_a_reflection_through_a_record_the_view_rejects_is_void_there() -> None:
    driver = driver_with(*said("abcd"))
    long = observations(observed("of d", "d"), covers="d", base=None)
    short = observations(observed("of c", "c"), covers="c", base=None)
    gist = reflections(reflected("gist of c", "0" * 12), base=None, through="short")
    folded: JsonObject = {
        "memory": payload(observed("of c", "c")),
        "base": None,
        "throughEntryId": "b",
        "foldedThrough": {"observations": "short"},
    }

    driver.append(
        custom("long", "d", long),
        custom("short", "c", short),
        custom("gist", "c", gist),
        compaction("om:compactor:1", "c", folded),
        chat("x", "c"),
    )
    driver.catch_up()

    _, leaf = leaf_of(driver, "d")
    assert (leaf.rejections.stale_base, leaf.rejections.not_accepted) == (1, 2)
    assert (contents(driver, "d"), gists(driver, "d")) == (["of d"], [])
    assert gists(driver, "x") == ["gist of c"]
    fits_the_model(driver)


def test_imported_coverage_never_moves_back() -> None:
    driver = driver_with(*said("abcd"))
    driver.append(
        custom("i1", "d", observations(covers="c"), side=False),
        custom("i2", "i1", observations(covers="a"), side=False),
    )
    driver.catch_up()

    assert leaf_of(driver, "i2")[1].coverage_id == "c"


def test_an_unknown_imported_coverage_reaches_to_the_records_own_place() -> None:
    driver = driver_with(*said("ab"), custom("i", "b", observations(covers="lost"), side=False))

    driver.append(chat("c", "i"))
    driver.catch_up()

    _, leaf = leaf_of(driver, "c")
    assert (leaf.coverage_id, leaf.n_pending) == ("i", 1)


def test_each_branch_gets_its_own_dropper_and_not_its_siblings_drops() -> None:
    driver = driver_with(*said("ab"), observe=20, reflect=6, target=4, policy="lowest-relevance")
    for _ in range(2):
        task = only(driver.due())
        driver.deliver(task, result_of(driver, task))
        driver.catch_up()
    driver.append(chat("x", "b"), chat("y", "b"))
    driver.catch_up()

    tasks = driver.due()
    results = [result_of(driver, task) for task in tasks]

    assert [type(task.effect) for task in tasks] == [RunDropper, RunDropper]
    assert {result.parent for result in results} == {"x", "y"}
    for task, result in zip(tasks, results, strict=True):
        driver.deliver(task, result)
    driver.settle()
    for tip in "xy":
        assert leaf_of(driver, tip)[1].rejections.superseded == 0
    fits_the_model(driver)


def test_of_two_children_that_expect_one_leaf_the_first_on_the_log_wins() -> None:
    driver = driver_with(*said("ab"))

    driver.append(
        chat("x", "b", expected_leaf="b"),
        chat("y", "b", expected_leaf="b"),
        chat("z", "y"),
        chat("free", "a"),
    )
    driver.catch_up()

    session = driver.session()
    assert session.head.n_conflicts == 2
    conflicts = {name: place.conflict for name in "xyz" if (place := session.place_of(name))}
    assert conflicts == {"x": False, "y": True, "z": True}
    assert session.leaf(session.head.default_segment).tip_id == "free"


def test_branches_with_expectations_of_their_own_do_not_conflict() -> None:
    driver = driver_with(*said("ab"), chat("x", "b"), chat("y", "a"))

    driver.append(chat("x2", "x", expected_leaf="x"), chat("y2", "y", expected_leaf="y"))
    driver.catch_up()

    assert driver.session().head.n_conflicts == 0


def test_left_pops_no_other_handles_scope() -> None:
    driver = driver_with(
        *said("a"),
        fact("o1", "a", "scope.opened", id="one"),
        fact("o2", "a", "scope.opened", id="two"),
        fact("e1", "a", "scope.entered", scopeId="one"),
        fact("e2", "a", "scope.entered", scopeId="two"),
        fact("l1", "a", "scope.left", scopeId="one"),
    )

    assert leaf_of(driver, "a")[1].scope_id == "two"


def test_a_run_ends_only_by_its_own_name_or_the_next_start() -> None:
    driver = driver_with(*said("a"), fact("s1", "a", "run.started", runId="one"))
    driver.append(fact("f2", "a", "run.finished", runId="two"))
    driver.catch_up()
    assert leaf_of(driver, "a")[1].run_id == "one"

    driver.append(
        fact("s2", "a", "run.started", runId="two"), fact("f1", "a", "run.finished", runId="one")
    )
    driver.catch_up()
    assert leaf_of(driver, "a")[1].run_id == "two"

    driver.append(fact("f3", "a", "run.finished", runId="two"))
    driver.catch_up()
    assert leaf_of(driver, "a")[1].run_id is None
