"""A parent, two children and a grandchild as processes of their own, killed at named states.

``make supervision-chaos ROUNDS=200``: each round a parent asks two children, the first
of them asks a grandchild; two kill points are armed, and whichever process comes by dies there with
SIGKILL and is started again. Afterwards every delegation has exactly one end, whoever waits is
answered the same before and after, nothing holds a slot, and the rows equal a fold of the log.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

import msgspec
from ombus.client.child import ChildFailure, ChildTask, Done, Offer, Standing
from ombus.client.children import Ended, serve_children
from ombus.operator.children import DirectBus, folder_bus
from ombus.operator.delegations import Delegations
from ombus.settings import ProcessSettings, load_settings
from ombus.wiring_supervision import open_supervision
from ombus_schemas.delegating import DelegateRequest, DelegationAnswer
from ombus_schemas.entries import Ownership
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject

from tests.supervision.refold import all_summed, check_fold

TENANT: Final = "acme"
OWNER: Final = Ownership(account_id="a", user_id="u")
KILLS: Final = 2
PARENT_STATES: Final = ("asked", "waiting", "answered")
CHILD_STATES: Final = ("offered", "claimed", "opened", "working", "said", "ended")
STATES: Final = (
    *(f"parent.{state}" for state in PARENT_STATES),
    *(f"child.{state}" for state in (*CHILD_STATES, "delegated")),
    *(f"grandchild.{state}" for state in CHILD_STATES),
    "supervisor.owning",
)
PROJECT: Final = """
[supervision.limits]
timeoutMs = {timeout_ms}
[supervision.children.left]
children = ["below"]
report = "stream"
[supervision.children.right]
report = "milestones"
[supervision.children.below]
"""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is to do; the input of its delegation."""

    how: str
    """``finish``, ``fail``, or ``hang`` until it is cancelled."""
    below: str | None = None
    """What the grandchild is to do."""


class Armed:
    """Kill points of one process: files that it takes away as it dies."""

    def __init__(self, folder: Path, role: str) -> None:
        self._folder, self._role = folder, role

    def die(self, state: str) -> None:
        """End this process here if the point is armed."""
        name = f"{self._role}.{state}"
        with suppress(FileNotFoundError):
            (self._folder / "armed" / name).unlink()
            with (self._folder / "hits").open("a") as hits:
                hits.write(name + "\n")
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly(DirectBus):
    """A bus whose process may die before or after each call."""

    def __init__(self, bus: DirectBus, armed: Armed) -> None:
        super().__init__(bus.children, bus.entries, bus.tenant)
        self._armed = armed

    async def claim(self, offer: Offer, holder: str, lease_ms: int) -> bool:
        self._armed.die("offered")
        is_held = await super().claim(offer, holder, lease_ms)
        if is_held:
            self._armed.die("claimed")
        return is_held

    async def finish(self, offer: Offer, holder: str, done: Done) -> Standing:
        self._armed.die("said")
        standing = await super().finish(offer, holder, done)
        self._armed.die("ended")
        return standing

    async def fail(self, offer: Offer, holder: str, failure: ChildFailure) -> Standing:
        self._armed.die("said")
        standing = await super().fail(offer, holder, failure)
        self._armed.die("ended")
        return standing


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run takes place: a data folder of this machine."""

    folder: Path
    lease_ms: int = 500
    round_s: float = 60.0
    timeout_ms: int = 20_000
    helpers: tuple[str, ...] = ()
    """Processes that are kept beside the children."""

    def settings(self) -> ProcessSettings:
        flags: JsonObject = {"data": str(self.folder / "data"), "tenant": TENANT}
        return load_settings(flags, {}, [self.folder / "ombus.toml"])

    def delegations(self, name: str, *, decides: bool = False) -> Delegations:
        """Open the delegations for a process of that name."""
        return Delegations(self.settings(), drives=decides)

    def bus(self, name: str) -> AbstractAsyncContextManager[DirectBus]:
        return folder_bus(self.settings())

    def help(self, name: str) -> None:
        """Be one of the helpers until killed."""

    def decider(self, pid_by_name: Mapping[str, int]) -> str | None:
        """Return which process decides for all of them, if that can be told now."""
        try:
            pid = int((self.folder / "data" / "supervision" / "owner.lock").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return next((name for name, each in pid_by_name.items() if each == pid), None)

    def check(self, sessions: Collection[str]) -> Counter[str]:
        """Compare rows and summaries with the log; return how the delegations ended."""
        settings = self.settings()
        asyncio.run(catch_up(settings))
        keys = [session_key(TENANT, session) for session in sessions]
        with self.delegations("driver") as delegations:
            for key, rows in all_summed(settings.folder, keys).items():
                told = [msgspec.to_builtins(row) for row in delegations.summary(key).children]
                folded = [msgspec.to_builtins(row) for row in rows]
                assert [*map(_stated, told)] == [*map(_stated, folded)]
        return check_fold(settings.folder)


def be_child(ground: Ground, name: str) -> None:
    """Serve a child id until killed."""
    asyncio.run(serve(ground, name))


async def serve(ground: Ground, name: str) -> None:
    folder = ground.folder
    armed = Armed(folder, "grandchild" if name == "below" else "child")

    async def work(task: ChildTask) -> Done:
        armed.die("opened")
        said = msgspec.json.decode(task.input, type=Asked)
        await task.publish({"role": "assistant", "content": f"{name} is at it"})
        armed.die("working")
        output = name
        if said.below is not None:
            output = await asyncio.to_thread(ask_below, task, said.below)
        if said.how == "fail":
            raise ChildFailure("as asked", reason="asked")
        if said.how == "hang":
            await asyncio.Event().wait()
        return Done(output=output)

    def ask_below(task: ChildTask, how: str) -> str:
        place = f"{name}-{task.offer.delegation_id}-{task.offer.epoch}"
        with ground.delegations(place) as delegations:
            key = session_key(TENANT, task.session_id)
            answer = delegations.delegate(key, request("below", Asked(how=how)), OWNER)
            armed.die("delegated")
            answer = delegations.wait(key, answer.delegation_id, ground.round_s)
            return f"{name} over {answer.state}"

    def watch(seen: Offer | Ended) -> None:
        if isinstance(seen, Ended):
            with (folder / "ended").open("a") as ended:
                ended.write(f"{seen.offer.delegation_id} {seen.offer.epoch} {seen.standing}\n")

    async with ground.bus(name) as bus:
        deadly = Deadly(bus, armed)
        await serve_children(deadly, name, work, slots=4, lease_ms=ground.lease_ms, watch=watch)


def request(child_id: str, asked: Asked, on_lost: str = "takeover") -> DelegateRequest:
    said = {
        "childId": child_id,
        "input": msgspec.json.encode(asked).decode(),
        "id": f"ask-{child_id}",
        "onLost": on_lost,
        "report": "stream",
    }
    return msgspec.convert(said, DelegateRequest)


def be_helper(ground: Ground, name: str) -> None:
    ground.help(name)


def be_parent(ground: Ground, session: str, plan: Sequence[tuple[str, Asked, str]]) -> None:
    """Ask both children, wait for both, end what hangs, and write down what was answered."""
    armed = Armed(ground.folder, "parent")
    key = session_key(TENANT, session)
    with ground.delegations("parent", decides=True) as delegations:
        ids: list[str] = []
        for child, asked, on_lost in plan:
            ids.append(
                delegations.delegate(key, request(child, asked, on_lost), OWNER).delegation_id
            )
            armed.die("asked")
        answers: list[DelegationAnswer] = []
        for (_, asked, _), delegation in zip(plan, ids, strict=True):
            answer = delegations.get(key, delegation)
            while not answer.is_over:
                if asked.how == "hang" and answer.state == "started":
                    delegations.cancel(key, delegation, "enough")
                answer = delegations.wait(key, delegation, 0.1)
                armed.die("waiting")
            answers.append(answer)
        with (ground.folder / "answers").open("ab") as lines:
            lines.write(msgspec.json.encode([session, answers]) + b"\n")
        armed.die("answered")


class House:
    """The processes of one run; those that die are started again."""

    def __init__(self, ground: Ground, rng: random.Random) -> None:
        folder = ground.folder
        self.ground, self.folder, self._rng = ground, folder, rng
        self._running: dict[str, ForkServerProcess] = {}
        # Each process is forked from one that has imported everything: a start is a few ms.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.supervision.chaos"])
        self.n_started = 0
        self.hits: Counter[str] = Counter()
        (folder / "armed").mkdir()
        project = PROJECT.replace("{timeout_ms}", str(ground.timeout_ms))
        (folder / "ombus.toml").write_text(project)
        for name in ("hits", "ended", "answers"):
            (folder / name).touch()

    def keep(self) -> None:
        """Start those of the processes that do not run."""
        for name in (*self.ground.helpers, "left", "right", "below"):
            process = self._running.get(name)
            if process is None or process.exitcode is not None:
                be = be_helper if name in self.ground.helpers else be_child
                self._start(name, be, name)

    def round(self, n: int) -> None:
        """Let a parent have its two children worked for, with kills, until all of it is over."""
        session = f"p{n}"
        plan = [
            ("left", Asked(how=self._how(), below=self._how(hangs=False)), self._on_lost()),
            ("right", Asked(how=self._how()), self._on_lost()),
        ]
        self._arm()
        self._start("parent", be_parent, session, plan)
        deadline = time.monotonic() + self.ground.round_s
        owner_is_killed = "supervisor.owning" in self._armed()
        while (code := self._running["parent"].exitcode) != 0:
            assert code in (None, -signal.SIGKILL), f"the parent ended with {code}"
            assert time.monotonic() < deadline, f"round {n} is not over: {self._armed()}"
            if code is not None:
                self._start("parent", be_parent, session, plan)
            self.keep()
            if owner_is_killed and self._kill_owner():
                owner_is_killed = False
            time.sleep(0.02)
        self._settle(session, deadline)

    def end(self) -> None:
        """Stop every process that this run started."""
        for process in self._running.values():
            process.kill()
            process.join()

    def _settle(self, session: str, deadline: float) -> None:
        """Return once every delegation of the round is over, the grandchild's included."""
        with self.ground.delegations("driver") as delegations:
            while not all(_is_over(node) for node in _nodes(delegations, session)):
                assert time.monotonic() < deadline, f"{session} is not over"
                self.keep()
                time.sleep(0.02)

    def _arm(self) -> None:
        for each in (self.folder / "armed").iterdir():
            each.unlink()
        self.hits = Counter((self.folder / "hits").read_text().split())
        rare = sorted(STATES, key=lambda state: (self.hits[state], self._rng.random()))
        for state in rare[:KILLS]:
            (self.folder / "armed" / state).touch()

    def _armed(self) -> list[str]:
        return sorted(each.name for each in (self.folder / "armed").iterdir())

    def _kill_owner(self) -> bool:
        """Kill whichever of our processes decides for all of them."""
        running = {
            name: process.pid
            for name, process in self._running.items()
            if process.exitcode is None and process.pid is not None
        }
        name = self.ground.decider(running)
        if name is None:
            return False
        self._running[name].kill()
        self._running[name].join()
        (self.folder / "armed" / "supervisor.owning").unlink()
        with (self.folder / "hits").open("a") as hits:
            hits.write("supervisor.owning\n")
        return True

    def _start(self, name: str, be: Callable[..., None], *arguments: object) -> None:
        process = self._context.Process(target=_be, args=(be, self.ground, *arguments))
        process.start()
        self._running[name] = process
        self.n_started += 1

    def _how(self, *, hangs: bool = True) -> str:
        return self._rng.choice(["finish", "finish", "fail", *(["hang"] if hangs else [])])

    def _on_lost(self) -> str:
        return self._rng.choice(["takeover", "takeover", "takeover", "fail"])


def _be(be: Callable[..., None], ground: Ground, *arguments: object) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    be(ground, *arguments)


def _nodes(delegations: Delegations, session: str) -> list[DelegationAnswer]:
    key = session_key(TENANT, session)
    found: list[DelegationAnswer] = []
    for node in delegations.tree(key).nodes:
        found.append(delegations.get(key, node.delegation_id))
        found += _nodes(delegations, node.child_session_id)
    return found


def _is_over(answer: DelegationAnswer) -> bool:
    return answer.is_over


def check(ground: Ground) -> Counter[str]:
    """Compare what the processes saw with the log; return how the delegations ended.

    Raises:
        AssertionError: one ended twice or never, a slot leaks, or an answer changed.
    """
    seen: dict[str, DelegationAnswer] = {}
    sessions: dict[str, None] = {}
    with ground.delegations("driver") as delegations:
        for line in (ground.folder / "answers").read_text().splitlines():
            session, answers = msgspec.json.decode(line, type=tuple[str, list[DelegationAnswer]])
            sessions[session] = None
            for answer in answers:
                again = delegations.wait(session_key(TENANT, session), answer.delegation_id, 0)
                assert again == answer == seen.setdefault(answer.delegation_id, answer)
    finished = Counter[str]()
    for line in (ground.folder / "ended").read_text().splitlines():
        delegation, _, standing = line.split()
        finished[delegation] += standing == "finished"
    # A process may be killed before it says so; no two ever say it.
    assert max(finished.values(), default=0) <= 1, "two children were told that they succeeded"
    return ground.check(sessions)


async def catch_up(settings: ProcessSettings) -> None:
    """Do what is left to be supervised, now that nobody else does."""
    supervision = open_supervision(settings)
    try:
        assert supervision.own(), "somebody else still supervises"
        while await supervision.step():
            pass
    finally:
        supervision.close()


def _stated(row: JsonObject) -> JsonObject:
    """Return a row without what is nothing, which answers leave out."""
    return {name: value for name, value in row.items() if value}


def chaos(rounds: int, seed: int, least: int, ground: Ground | None = None) -> str:
    """Run the rounds and return the line that says what happened."""
    began = time.monotonic()
    ground = ground or Ground(folder=Path(tempfile.mkdtemp(prefix="ombus-chaos-")))
    house = House(ground, random.Random(seed))
    try:
        for n in range(rounds):
            house.round(n)
    finally:
        house.end()
    hits = Counter((ground.folder / "hits").read_text().split())
    ends = check(ground)
    shutil.rmtree(ground.folder)
    rarest = min(STATES, key=lambda state: hits[state])
    assert hits[rarest] >= least, f"{rarest} was hit {hits[rarest]} times, {least} are wanted"
    counts = ", ".join(f"{state} {hits[state]}" for state in STATES)
    how = ", ".join(f"{n:,} {state}" for state, n in sorted(ends.items()))
    return (
        f"kills: {counts}\n"
        f"{rounds:,} rounds in {time.monotonic() - began:.0f} s: {sum(hits.values()):,} kills, "
        f"{house.n_started:,} processes; {ends.total():,} delegations, each with one end: {how}; "
        "answers, slots, summaries and rows equal a fold of the log"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=int, default=20, help="hits of the rarest state")
    said = parser.parse_args()
    print(chaos(said.rounds, said.seed, said.least))
