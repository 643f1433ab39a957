"""S19 over supplied branches and grants."""

from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.entries import Entry
from ombus_schemas.settings import SharedScope
from ombus_streams.memory import scopes, shared
from ombus_streams.memory.ledger import active
from ombus_streams.memory.projection import project
from ombus_streams.memory.shared import Branch, Supply, branch_of

from tests.memory.test_scopes import folded, on, opened, ref
from tests.support.ledgers import (
    entry,
    memory,
    message,
    observation,
    observed,
    reflected,
    reflection,
)

SCOPE = SharedScope(scope_id="build", owner_session_id="own")
LOCAL = folded(opened("build"))


def branch(*items: Entry, binds: tuple[int, ...] = (1,)) -> Branch:
    bound = on("bound", "build", refs=[ref(n) for n in binds])
    return branch_of([entry("o", data=opened("build")), entry("b", data=bound), *items])


def denied(
    scope: SharedScope = SCOPE,
    local: scopes.ScopeMap = LOCAL,
    supply: Supply | None = None,
) -> str | None:
    supplies = {} if supply is None else {scope.scope_id: supply}
    (decision,), resolved = shared.resolve([scope], "me", local, supplies)
    assert resolved == () or decision.granted
    return decision.reason


def test_every_missing_fact_denies_with_its_reason_in_order() -> None:
    own = {"own": branch()}

    assert denied(SharedScope(scope_id="a b", owner_session_id="own")) == "invalid_config"
    assert denied(SharedScope(scope_id="build", owner_session_id="")) == "invalid_config"
    assert denied(local=scopes.EMPTY) == "not_opened"
    assert denied() == "unavailable"
    assert denied(supply=Supply(branches=own, granted=None)) == "unavailable"
    assert denied(supply=Supply(branches={}, granted=("me",))) == "unavailable"
    assert denied(supply=Supply(branches={"own": branch_of([])}, granted=("me",))) == (
        "unknown_scope"
    )
    assert denied(supply=Supply(branches=own, granted=("you",))) == "not_granted"
    assert denied(supply=Supply(branches=own, granted=("me",))) is None


def test_peers_are_read_by_utf16_order_without_the_reader() -> None:
    names = ["me", "\U0001f600", "￠", "b"]

    assert shared.sessions_to_read("own", names, "me") == ("b", "own", "\U0001f600", "￠")


def test_the_first_branch_wins_an_id_and_unbound_memory_stays_private() -> None:
    supply = Supply(
        branches={
            "own": branch(observed("c", observation(1, "owner"), observation(2, "private"))),
            "peer": branch(observed("c", observation(1, "peer"))),
            "idle": branch(observed("c", observation(3)), binds=()),
        },
        granted=("me", "peer", "idle", "ghost"),
    )

    (decision,), (found,) = shared.resolve([SCOPE], "me", LOCAL, {"build": supply})

    assert [item.content for item in found.ledger.observations] == ["owner"]
    assert found.branch_ids == ("own", "peer")
    assert (decision.n_branches, decision.n_observations) == (2, 1)


def test_a_shared_reflection_is_hidden_with_the_sources_of_its_support() -> None:
    local = [message("e1", "hello")]
    owner = branch(
        observed("c", observation(1, sources=("own-e1",))),
        reflected("r", reflection(9, supports=(1,))),
        entry("b2", data=on("bound", "build", refs=["reflection:000000000009"])),
    )
    supply = Supply(branches={"own": owner}, granted=("me",))
    _, resolved = shared.resolve([SCOPE], "me", LOCAL, {"build": supply})
    memories = shared.merge(resolved)
    hit = frozenset({"own-e1"})

    assert len(shared.join(project(local), memories).reflections) == 1
    assert shared.join(project(local, None, hit), memories, hit).reflections == ()
    assert len(shared.join(project(local, None, hit), memories, hit, "named").reflections) == 1


@given(st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=4))
def test_merging_keeps_the_first_item_of_an_id(ids_by_branch: list[list[int]]) -> None:
    supplies = Supply(
        branches={
            f"b{i}": branch(
                observed("c", *(observation(n, f"{i}") for n in ids)), binds=(0, 1, 2, 3, 4)
            )
            for i, ids in enumerate([[], *ids_by_branch])
        },
        granted=("me", *(f"b{i}" for i in range(1, len(ids_by_branch) + 1))),
    )
    scope = SharedScope(scope_id="build", owner_session_id="b0")
    _, resolved = shared.resolve([scope], "me", LOCAL, {"build": supplies})
    merged = shared.merge(resolved)
    first: dict[str, str] = {}
    for i, ids in enumerate(ids_by_branch, start=1):
        for n in ids:
            first.setdefault(memory(n), f"{i}")

    assert {item.id: item.content for item in merged.observations} == first
    assert active(merged.ledger) == merged.observations
