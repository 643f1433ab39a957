"""Children on a data folder: claims, leases, transcripts and ends, as their parents see them."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from ombus.client.child import ChildFailure, ChildTask, Done, Offer, Work
from ombus.client.children import Ended, serve_children
from ombus.client.command import Caps, run_command
from ombus.operator.children import DirectBus, folder_bus
from ombus.operator.delegations import Delegations
from ombus.settings import ProcessSettings, load_settings
from ombus.wiring import open_log
from ombus_schemas.delegating import DelegateRequest, DelegationAnswer
from ombus_schemas.entries import Entry, Ownership
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.supervision import OnLost, delegation_of

TENANT, PARENT = "acme", "boss"
KEY = session_key(TENANT, PARENT)
OWNER = Ownership(account_id="a", user_id="u")
SECRET = "hunter2-hunter2"
LEASE_MS = 60_000
"""No machine is so busy that a heartbeat comes too late."""
SHORT_MS = 400
"""Of a child that is to lose it."""
TIMEOUT_S = 20.0
PROJECT = """
[supervision.limits]
activeChildren = 8
[supervision.children.scout]
report = "stream"
deny = ["rm"]
[supervision.children.scout.limits]
steps = 3
tokens = 100
"""


class House:
    """A data folder with a parent that asks, and whoever works for it."""

    def __init__(self, settings: ProcessSettings, parent: Delegations) -> None:
        self.settings, self.parent = settings, parent

    def ask(self, text: str = "go", *, on_lost: OnLost = "takeover") -> str:
        asked = DelegateRequest(child_id="scout", input=text, on_lost=on_lost)
        return self.parent.delegate(KEY, asked, OWNER).delegation_id

    def end_of(self, delegation: str) -> DelegationAnswer:
        answer = self.parent.wait(KEY, delegation, TIMEOUT_S)
        assert answer.is_over, answer
        return answer

    def work(self, work: Work, *, tasks: int = 1) -> list[Ended]:
        """Let one process work until so many claims have ended."""

        async def run() -> list[Ended]:
            async with folder_bus(self.settings) as bus:
                return await self.serve(bus, work, tasks=tasks)

        return asyncio.run(run())

    async def serve(
        self, bus: DirectBus, work: Work, *, tasks: int = 1, lease_ms: int = LEASE_MS
    ) -> list[Ended]:
        seen: list[Ended] = []

        def watch(each: Offer | Ended) -> None:
            if isinstance(each, Ended):
                seen.append(each)

        serving = serve_children(
            bus, "scout", work, lease_ms=lease_ms, max_tasks=tasks, watch=watch
        )
        await asyncio.wait_for(serving, TIMEOUT_S)
        return seen

    def entries(self, delegation: str) -> list[Entry]:
        """Return the child's session."""
        log = open_log(self.settings.folder)
        try:
            key = session_key(TENANT, f"{delegation}-session")
            return [msgspec.json.decode(each.value or b"", type=Entry) for each in log.of_key(key)]
        finally:
            log.close()

    def said(self) -> list[str]:
        """Return the names of the parent's events, without heartbeats."""
        found, _ = self.parent.told(KEY, 0, 1_000)
        names = [str(each.event["type"]) for each in found]
        return [name for name in names if name != "delegation_heartbeat"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    project = tmp_path / "ombus.toml"
    project.write_text(PROJECT)
    (tmp_path / "secrets.txt").write_text(SECRET)
    flags = {
        "data": str(tmp_path / "data"),
        "tenant": TENANT,
        "secrets-file": str(tmp_path / "secrets.txt"),
    }
    settings = load_settings({**flags}, {}, [project])
    with Delegations(settings) as parent:
        yield House(settings, parent)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def never(task: ChildTask) -> None:
    await asyncio.Event().wait()


def test_a_child_works_and_its_parent_hears_the_end(house: House) -> None:
    async def work(task: ChildTask) -> str:
        await task.publish({"role": "assistant", "content": f"looked at {task.input}"})
        return "all is well"

    delegation = house.ask("the pump")

    (ended,) = house.work(work)

    answer = house.end_of(delegation)
    assert (ended.standing, answer.state, answer.output) == ("finished", "finished", "all is well")
    first, second, last = house.entries(delegation)
    said = delegation_of(first)
    assert said is not None
    assert (said.parent_session_id, said.delegation_id, said.child_id) == (
        PARENT, delegation, "scout",
    )  # fmt: skip
    assert said.limits["steps"] == 3
    assert (first.message, second.parent_id, last.event) != (None, None, None)
    assert second.parent_id == first.id
    assert last.event == {"type": "agent_finished", "status": "completed"}


def test_the_session_of_a_child_is_opened_with_the_settings_of_the_files(house: House) -> None:
    said = msgspec.structs.replace(house.settings, memory_said={"passive": True})
    house.settings = said

    async def work(task: ChildTask) -> str:
        return "done"

    delegation = house.ask()
    house.work(work)

    first, control, _ = house.entries(delegation)
    assert delegation_of(first) is not None
    assert (control.data_type, control.side, control.parent_id) == (
        "om.settings.changed", True, first.id,
    )  # fmt: skip


def test_without_a_word_the_output_is_what_the_assistant_said_last(house: House) -> None:
    async def work(task: ChildTask) -> None:
        await task.publish(
            {"role": "assistant", "content": "first"},
            {"role": "assistant", "content": [{"type": "text", "text": f"last, {SECRET}"}],
             "metadata": {"usage": {"totalTokens": 7}}},
        )  # fmt: skip

    delegation = house.ask()
    house.work(work)

    answer = house.end_of(delegation)
    assert (answer.output, answer.total_tokens) == ("last, [REDACTED]", 7)
    assert SECRET not in str(house.entries(delegation))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ChildFailure("no luck", reason="luck"), "no luck"),
        (ValueError(f"bad {SECRET}"), "ValueError: bad [REDACTED]"),
    ],
)
def test_a_child_that_fails_says_so_once(house: House, error: Exception, reason: str) -> None:
    async def work(task: ChildTask) -> None:
        raise error

    delegation = house.ask()

    (ended,) = house.work(work)

    answer = house.end_of(delegation)
    assert (ended.standing, answer.state, answer.reason) == ("failed", "failed", reason)
    names = house.said()
    assert names.index("child_failed") < names.index("delegation_error")


def talk(n: int) -> Callable[[ChildTask], Awaitable[None]]:
    async def work(task: ChildTask) -> None:
        for _ in range(n):
            said: JsonObject = {"role": "assistant", "content": "hm"}
            await task.publish(said, said, {"role": "user", "content": "go on"})

    return work


def turns(n: int) -> Callable[[ChildTask], Awaitable[None]]:
    async def work(task: ChildTask) -> None:
        for turn in range(n):
            await task.event("turn_started", turn=turn)
            await task.publish({"role": "assistant", "content": "hm"})

    return work


def spend(n: int) -> Callable[[ChildTask], Awaitable[None]]:
    async def work(task: ChildTask) -> None:
        usage: JsonObject = {"usage": {"totalTokens": n}}
        await task.publish({"role": "assistant", "content": "hm", "metadata": usage})

    return work


def call(tool: str) -> Callable[[ChildTask], Awaitable[None]]:
    async def work(task: ChildTask) -> None:
        block: JsonObject = {"type": "tool_call", "id": "c1", "name": tool}
        await task.publish({"role": "assistant", "content": [block]})

    return work


@pytest.mark.parametrize(
    ("work", "state"),
    [
        (talk(3), "finished"), (talk(4), "failed"),
        (turns(3), "finished"), (turns(4), "failed"),
        (spend(100), "finished"), (spend(101), "failed"),
        (call("ls"), "finished"), (call("rm"), "failed"),
    ],
)  # fmt: skip
def test_limits_and_permissions_end_a_child(house: House, work: Work, state: str) -> None:
    delegation = house.ask()

    house.work(work)

    assert house.end_of(delegation).state == state


def test_a_cancel_reaches_a_running_child(house: House) -> None:
    delegation = house.ask()
    was_cancelled = threading.Event()

    async def work(task: ChildTask) -> None:
        threading.Thread(target=house.parent.cancel, args=(KEY, delegation, "enough")).start()
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    (ended,) = house.work(work)

    assert was_cancelled.is_set()
    assert (ended.standing, house.end_of(delegation).state) == ("cancelled", "cancelled")
    assert house.entries(delegation)[-1].event == {"type": "agent_finished", "status": "cancelled"}


class Silent(DirectBus):
    """A bus that was cut: nothing this child says arrives any more."""

    is_cut = False

    def __init__(self, bus: DirectBus) -> None:
        super().__init__(bus.children, bus.entries, bus.tenant)

    async def beat(self, offer: Offer, holder: str, n: int) -> "str":  # type: ignore[override]
        if self.is_cut:
            raise OSError("cut")
        return await super().beat(offer, holder, n)

    async def standing(self, offer: Offer, holder: str) -> "str":  # type: ignore[override]
        if self.is_cut:
            raise OSError("cut")
        return await super().standing(offer, holder)


def lost_then(
    house: House, after: Work, *, on_lost: OnLost
) -> tuple[str, list[Ended], list[Ended]]:
    """Return what becomes of a delegation whose first child is cut off while it works."""

    async def run() -> tuple[str, list[Ended], list[Ended]]:
        async with folder_bus(house.settings) as bus:
            cut = Silent(bus)

            async def stuck(task: ChildTask) -> None:
                cut.is_cut = True
                await asyncio.Event().wait()

            delegation = await asyncio.to_thread(house.ask, on_lost=on_lost)
            first = await house.serve(cut, stuck, lease_ms=SHORT_MS)
            if on_lost == "fail":
                return delegation, first, []
            return delegation, first, await house.serve(bus, after)

    return asyncio.run(run())


def test_a_lost_child_is_taken_over_and_only_the_second_succeeds(house: House) -> None:
    async def work(task: ChildTask) -> str:
        await task.publish({"id": "mine", "role": "assistant", "content": "again"})
        return f"attempt {task.offer.epoch}"

    delegation, first, second = lost_then(house, work, on_lost="takeover")

    assert [each.standing for each in first] == ["lost"]
    assert [each.standing for each in second] == ["finished"]
    assert house.end_of(delegation).output == "attempt 2"
    assert house.said().count("delegation_finished") == 1
    ids = [entry.id for entry in house.entries(delegation)]
    assert ids.count(f"{delegation}.input") == 2  # The same entry twice: the first one wins.
    assert "mine~2" in ids


def test_a_lost_child_fails_its_delegation_when_asked_so(house: House) -> None:
    delegation, first, _ = lost_then(house, never, on_lost="fail")

    assert [each.standing for each in first] == ["lost"]
    answer = house.end_of(delegation)
    assert answer.state == "failed"
    assert "delegation_finished" not in house.said()


def test_of_two_that_finish_under_different_leases_one_counts(house: House) -> None:
    async def run(delegation: str) -> list[str]:
        async with folder_bus(house.settings) as bus:
            other = DirectBus(bus.children, bus.entries, TENANT)
            (offer,) = await bus.offers("scout")
            assert await bus.claim(offer, "one", 250)
            assert not await other.claim(offer, "two", 250)
            while not (late := await other.offers("scout")):  # Waits a little by itself.
                pass
            assert await other.claim(late[0], "two", 250)
            done = Done(output="mine")
            return [await bus.finish(offer, "one", done), await other.finish(late[0], "two", done)]

    delegation = house.ask()

    assert asyncio.run(run(delegation)) == ["lost", "finished"]
    assert house.end_of(delegation).state == "finished"


def script(tmp_path: Path, text: str) -> Work:
    path = tmp_path / "child.py"
    path.write_text(text)

    async def work(task: ChildTask) -> Done:
        caps = Caps(max_lines=50, max_line_bytes=1_000, max_bytes=5_000, grace_seconds=0.5)
        return await run_command(task, [sys.executable, "-S", str(path)], caps, {})

    return work


def test_a_program_reads_its_input_and_prints_its_transcript(house: House, tmp_path: Path) -> None:
    work = script(
        tmp_path,
        "import os, sys, json\n"
        "said = sys.stdin.read()\n"
        "print(json.dumps({'type': 'turn_started', 'turn': 1}))\n"
        "print(json.dumps({'role': 'assistant', 'content': [\n"
        "    {'type': 'tool_call', 'id': 'c1', 'name': 'ls'}]}))\n"
        "print()\n"
        f"print('heard ' + said + ' {SECRET}')\n"
        "print(os.environ['OMBUS_CHILD_ATTEMPT'])\n",
    )
    delegation = house.ask("é, two\nlines")

    house.work(work)

    assert house.end_of(delegation).output == "1"
    kinds = [entry.kind for entry in house.entries(delegation)]
    assert kinds == ["message", "event", "message", "message", "message", "message", "event"]
    text = str(house.entries(delegation))
    assert "heard é, two" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("for n in range(60): print()", "the output passed 50 lines: raise the cap, or say less"),
        ("print('x' * 1_001)", "the output passed 1,000 lineBytes: raise the cap, or say less"),
        (
            "for n in range(9): print('x' * 900, flush=True)",
            "the output passed 5,000 bytes: raise the cap, or say less",
        ),
        (
            'print(\'{"kind": "compaction"}\', flush=True)\nimport time\ntime.sleep(60)',
            None,
        ),
    ],
)
def test_a_program_that_ends_badly_fails(
    house: House, tmp_path: Path, program: str, reason: str | None
) -> None:
    delegation = house.ask()

    house.work(script(tmp_path, program))

    answer = house.end_of(delegation)
    assert answer.state == "failed"
    assert reason is None or answer.reason == reason


def test_a_program_that_is_not_there_fails(house: House) -> None:
    async def work(task: ChildTask) -> Done:
        return await run_command(task, ["/nowhere/child"], Caps(), {})

    delegation = house.ask()
    house.work(work)

    assert house.end_of(delegation).reason == "/nowhere/child: No such file or directory"


@pytest.mark.parametrize("minds", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"])
def test_a_cancel_ends_the_program_even_one_that_does_not_mind(
    house: House, tmp_path: Path, minds: str
) -> None:
    mark = tmp_path / "pid"
    run = script(
        tmp_path,
        f"import os, signal, time\n{minds}"
        f"open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n",
    )
    delegation = house.ask()

    async def work(task: ChildTask) -> Done | str | None:
        async def cancel() -> None:
            await asyncio.to_thread(
                until, lambda: any("ready" in str(entry) for entry in house.entries(delegation))
            )
            await asyncio.to_thread(house.parent.cancel, KEY, delegation)

        cancelling = asyncio.create_task(cancel())
        try:
            return await run(task)
        finally:
            await cancelling

    (ended,) = house.work(work)

    assert ended.standing == "cancelled"
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)  # Signal 0 only asks whether it is there.


@contextmanager
def serving(house: House, work: Work) -> Iterator[list[Ended]]:
    """Let a child process's loop run beside the test."""
    seen: list[Ended] = []
    started = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        async with folder_bus(house.settings) as bus:
            started.set()
            await serve_children(
                bus, "scout", work, slots=4, lease_ms=LEASE_MS, stop=stop,
                watch=lambda each: seen.append(each) if isinstance(each, Ended) else None,
            )  # fmt: skip

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert started.wait(TIMEOUT_S)
    try:
        yield seen
    finally:
        for loop, stop in loops:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)
        thread.join()


def test_two_processes_share_the_delegations_of_a_child(house: House) -> None:
    async def work(task: ChildTask) -> str:
        return task.input

    with serving(house, work) as one, serving(house, work) as two:
        asked = [house.ask(str(n)) for n in range(8)]
        answers = [house.end_of(each) for each in asked]

    assert [answer.output for answer in answers] == [str(n) for n in range(8)]
    finished = [each.offer.delegation_id for each in one + two if each.standing == "finished"]
    assert sorted(finished) == sorted(asked)


def test_the_end_of_a_parent_ends_its_task_children(house: House) -> None:
    with serving(house, never) as seen:
        delegation = house.ask()
        until(lambda: "delegation_started" in house.said())
        house.parent.gone(KEY, "crashed")
        assert house.end_of(delegation).state == "cancelled"
        until(lambda: bool(seen))

    assert [each.standing for each in seen] == ["cancelled"]
