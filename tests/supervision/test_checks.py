"""What a request must pass, in the order of S23.2, and what it is granted at most."""

from typing import Any

import msgspec
import pytest
from ombus_schemas.supervision import Permission, ReportPolicy
from ombus_streams.supervision.checks import (
    Approval,
    ChildPolicy,
    Denial,
    Grant,
    HostPolicy,
    approved,
    checked,
    slotted,
)
from ombus_streams.supervision.handle import Handle
from ombus_streams.supervision.limits import DEFAULT, HARD, host_limits, lowered, shared
from ombus_streams.supervision.parent import Lineage
from ombus_streams.supervision.permissions import denial

HOST = HostPolicy(
    children={
        "lead": ChildPolicy(children=("scout", "lead")),
        "scout": ChildPolicy(),
        "other": ChildPolicy(),
    }
)


def asked(**members: Any) -> Handle:
    values = {
        "id": "d1",
        "request_id": "ask-1",
        "child_id": "scout",
        "state": "requested",
        "has_owner": True,
        "requested_ms": 1,
        **members,
    }
    return Handle(**values)


def below(child_id: str = "lead", **members: Any) -> Lineage:
    values = {
        "parent_session_id": "boss",
        "delegation_id": "d0",
        "child_id": child_id,
        "depth": 1,
        "path": (child_id,),
        "limits": dict(DEFAULT),
        **members,
    }
    return Lineage(**values)


# Every case breaks its own check and all those after it: so the order is what is tested.
WORST: dict[str, Any] = {
    "child_id": "lead",
    "lifetime": "session",
    "mode": "sync",
    "has_owner": False,
    "input_bytes": 99_999,
    "budget_share": 0.0,
}
DEEP = below(depth=4)
LASTING = HostPolicy(
    children={name: msgspec.structs.replace(each, session=True) for name, each in
              HOST.children.items()}
)  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "members", "lineage", "host"),
    [
        ("allow_list", {"child_id": "nobody"}, DEEP, HOST),
        ("allow_list", {"child_id": "other"}, DEEP, HOST),
        ("cycle", {}, DEEP, HOST),
        ("policy", {"child_id": "scout"}, DEEP, HOST),
        ("policy", {"child_id": "scout"}, DEEP, LASTING),
        ("mode", {"child_id": "scout", "budget_share": 0.5}, DEEP, LASTING),
        ("depth", {"child_id": "scout", "budget_share": 0.5, "mode": "async"}, DEEP, LASTING),
        (
            "identity",
            {"child_id": "scout", "budget_share": 0.5, "mode": "async"},
            below(),
            LASTING,
        ),
        (
            "input_bytes",
            {"child_id": "scout", "budget_share": 0.5, "mode": "async", "has_owner": True},
            below(),
            LASTING,
        ),
    ],
)
def test_the_first_check_that_fails_is_the_reason(
    reason: str, members: dict[str, Any], lineage: Lineage, host: HostPolicy
) -> None:
    found = checked(asked(**{**WORST, **members}), lineage, host)
    assert isinstance(found, Denial)
    assert found.reason == reason


def test_the_hook_is_asked_before_the_slot_and_both_may_refuse() -> None:
    grant = checked(asked(), None, HOST)
    assert isinstance(grant, Grant)
    denied = approved(asked(), grant, Approval(is_allowed=False, detail="not today"))
    assert denied == Denial("hook", "not today")
    full = slotted(grant, DEFAULT["activeChildren"])
    assert isinstance(full, Denial)
    assert full.reason == "slots"
    assert slotted(grant, DEFAULT["activeChildren"] - 1) == grant


def test_a_request_passes_with_its_path_its_depth_and_the_host_s_limits() -> None:
    grant = checked(asked(), below(), HOST)
    assert isinstance(grant, Grant)
    assert (grant.depth, grant.path, grant.limits) == (2, ("lead", "scout"), dict(DEFAULT))


def test_limits_are_only_ever_lowered() -> None:
    child = ChildPolicy(limits={"steps": 6, "tokens": 900_000})
    host = HostPolicy(children={"scout": child, "lead": ChildPolicy(children=("scout",))})
    wish = asked(limits={"steps": 60, "toolCalls": 3, "timeoutMs": 0})
    grant = checked(wish, below(limits={**DEFAULT, "tokens": 5_000}), host)
    assert isinstance(grant, Grant)
    assert (grant.limits["steps"], grant.limits["toolCalls"]) == (6, 3)
    assert (grant.limits["tokens"], grant.limits["timeoutMs"]) == (5_000, 60_000)
    said = Approval(is_allowed=True, limits={"steps": 60, "toolCalls": 2}, input="shorter")
    lower = approved(wish, grant, said)
    assert isinstance(lower, Grant)
    assert (lower.limits["steps"], lower.limits["toolCalls"], lower.input) == (6, 2, "shorter")


def test_a_share_divides_what_was_inherited_and_leaves_at_least_one() -> None:
    found = shared({"steps": 9, "toolCalls": 1, "tokens": 1_001, "timeoutMs": 10, "depth": 4}, 0.5)
    assert found == {"steps": 4, "toolCalls": 1, "tokens": 500, "timeoutMs": 5, "depth": 4}
    host = HostPolicy(children={"scout": ChildPolicy(budget_share=0.5, limits={"steps": 7})})
    grant = checked(asked(budget_share=0.25), None, host)
    assert isinstance(grant, Grant)
    assert grant.limits["steps"] == DEFAULT["steps"] // 4


@pytest.mark.parametrize(
    ("ceiling", "wish", "expected"),
    [
        (("on-complete", None), ("stream", None), ("on-complete", None)),
        (("milestones", 4), ("stream", 2), ("milestones", 4)),
        (("stream", 2), ("milestones", 5), ("milestones", 5)),
        (("stream", None), ("on-complete", 3), ("on-complete", 3)),
    ],
)
def test_a_report_is_the_quieter_of_two_and_its_cadence_the_wider(
    ceiling: tuple[Any, int | None], wish: tuple[Any, int | None], expected: tuple[Any, int | None]
) -> None:
    host = HostPolicy(children={"scout": ChildPolicy(report=ceiling[0], every_turns=ceiling[1])})
    policy = ReportPolicy(report=wish[0], every_turns=wish[1])
    grant = checked(asked(policy=policy), None, host)
    assert isinstance(grant, Grant)
    assert (grant.policy.report, grant.policy.every_turns) == expected


def test_a_host_may_raise_limits_up_to_the_hard_ones_and_no_further() -> None:
    assert host_limits({"steps": 64})["steps"] == 64
    for said in ({"steps": 65}, {"steps": 0}, {"stepps": 1}):
        with pytest.raises(ValueError, match="step"):
            host_limits(said)
    assert set(HARD) == set(DEFAULT)
    assert all(DEFAULT[name] <= HARD[name] for name in HARD)


def test_lowering_knows_no_names_but_those_there_are() -> None:
    assert lowered({"steps": 8}, {"steps": 0, "tokens": 1}, {"steps": 3}) == {"steps": 3}


def test_permissions_are_anded_and_the_first_denial_wins() -> None:
    both = (Permission(allow=("read", "bash")), Permission(deny=("bash",)))
    limits = {"toolCalls": 2}
    assert denial(both, "read", 1, limits) is None
    assert denial(both, "bash", 0, limits) == "bash is denied"
    assert denial(both, "write", 0, limits) == "write is not among the allowed tools"
    assert denial(both, "read", 2, limits) == "2 tool calls are made, which is the limit"
