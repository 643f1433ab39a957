"""A child's transcript on a data folder is heard by its parent, without anybody's help."""

from ombus.client.child import ChildTask
from ombus_schemas.delegating import DelegateRequest, Milestone

from tests.supervision.test_child import KEY, OWNER, SECRET, House, house, until

__all__ = ["house"]


def test_a_parent_hears_milestones_of_a_running_child_and_the_sum_at_its_end(house: House) -> None:
    async def work(task: ChildTask) -> None:
        for n in range(30):
            await task.event("tool_execution_blocked", toolName="ls", reason=f"{SECRET} {n}")

    asked = DelegateRequest(
        child_id="scout",
        input="go",
        report="milestones",
        milestone=Milestone(when=("tool_execution_blocked:ls",)),
    )
    house.parent.delegate(KEY, asked, OWNER)

    house.work(work)

    until(lambda: "delegation_child_events_closed" in house.said())
    found, _ = house.parent.told(KEY, 0, 1_000)
    (closed,) = [e.event for e in found if e.event["type"] == "delegation_child_events_closed"]
    milestones = [e.event for e in found if e.event["type"] == "child_milestone"]
    dropped = [e.event["dropped"] for e in found if "dropped" in e.event]
    assert closed["offered"] == 30 == len(milestones) + sum(map(int, map(str, dropped)))
    assert SECRET not in str(found)

    def counted() -> tuple[int, int]:
        (node,) = house.parent.tree(KEY).nodes
        return node.events, node.coalesced

    until(lambda: counted() == (len(milestones), closed["coalesced"]))
