"""Any program as a child: the input on its standard input, its transcript on its output.

A line is a message (``{"role": ..., "content": ...}``), an entry (``{"kind": ...}``), an event of
the agent (``{"type": "turn_started", ...}``), or plain text, which the assistant said. The exit
code says how it ended. The program has a process group of its own; a cancelled one gets SIGTERM,
then SIGKILL. Should this process be killed, the kernel kills it, too, where there is Linux.
"""

import asyncio
import ctypes
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue

from ombus.client.child import ChildFailure, ChildTask, Done

CHUNK_BYTES: Final = 65_536
DRAIN_S: Final = 1.0
"""How long output is read after the program itself has ended: something else may hold the pipe."""
PREFIX: Final = "OMBUS_CHILD_"


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """What a program may print, and how long it may take to end."""

    max_lines: int = 10_000
    max_line_bytes: int = 1_048_576
    max_bytes: int = 67_108_864
    grace_seconds: float = 5.0
    """Between SIGTERM and SIGKILL."""


async def run_command(
    task: ChildTask, command: Sequence[str], caps: Caps, environ: Mapping[str, str]
) -> Done:
    """Run a program on one delegation; return once it has ended well and all of it is published.

    Raises:
        ChildFailure: it ended otherwise, cannot be started, or passed a cap or a limit.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            env={**environ, **environment(task)},
            start_new_session=True,
            preexec_fn=_dies_with_parent(),
        )
    except OSError as error:
        fact = f"{command[0]}: {error.strerror or error}"
        raise ChildFailure(fact, reason="not_started") from error
    feeding = asyncio.create_task(_feed(process, task.input.encode()))
    reading = asyncio.create_task(_read(process, task, caps))
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            await asyncio.wait({reading}, timeout=DRAIN_S)
        if reading.done():
            reading.result()
        code = await ending
    finally:
        await _end(process, caps.grace_seconds)
        for each in (feeding, reading, ending):
            each.cancel()
        await asyncio.gather(feeding, reading, ending, return_exceptions=True)
    if code < 0:
        fact = f"ended by signal {-code}"
        raise ChildFailure(fact, reason="signal", stop_reason=_signal_name(-code), exit_code=code)
    if code > 0:
        raise ChildFailure(f"exit code {code}", reason="exit_code", exit_code=code)
    return Done()


def environment(task: ChildTask) -> dict[str, str]:
    """Return what the program is told beside its input."""
    offer = task.offer
    said = {
        "ID": offer.child_id,
        "DELEGATION": offer.delegation_id,
        "SESSION": offer.child_session_id,
        "PARENT": offer.parent,
        "ATTEMPT": str(offer.epoch),
        "DEPTH": str(offer.depth),
        "LIMITS": msgspec.json.encode(offer.limits, order="sorted").decode(),
        "PERMISSIONS": msgspec.json.encode(offer.permissions).decode(),
    }
    return {PREFIX + name: value for name, value in said.items()}


def entry_of(line: bytes) -> JsonObject | None:
    """Return what a line of output says, ``None`` for an empty one. Total."""
    if not line.strip():
        return None
    try:
        value: JsonValue = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if isinstance(value, dict):
        if "role" in value or "kind" in value:
            return value
        if isinstance(value.get("type"), str):
            return {"kind": "event", "event": value}
    text = line.decode("utf-8", "replace").rstrip("\r")
    return {"role": "assistant", "content": text}


async def _feed(process: Process, said: bytes) -> None:
    assert process.stdin is not None
    # A program need not read its input.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(said)
        await process.stdin.drain()
    process.stdin.close()


async def _read(process: Process, task: ChildTask, caps: Caps) -> None:
    assert process.stdout is not None
    held, n_lines, n_bytes = b"", 0, 0
    while True:
        chunk = await process.stdout.read(CHUNK_BYTES)
        n_bytes += len(chunk)
        if n_bytes > caps.max_bytes:
            raise _over("bytes", caps.max_bytes)
        *lines, held = (held + chunk).split(b"\n") if chunk else (held, b"")
        if max(map(len, (*lines, held))) > caps.max_line_bytes:
            raise _over("lineBytes", caps.max_line_bytes)
        n_lines += len(lines)
        entries = [entry for line in lines if (entry := entry_of(line)) is not None]
        if entries:
            await task.publish(*entries)
        if n_lines > caps.max_lines:
            raise _over("lines", caps.max_lines)
        if not chunk:
            return


async def _end(process: Process, grace_seconds: float) -> None:
    """Return once nothing of the program's group is left that minds a signal."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(process.wait()), grace_seconds)
    finally:
        # Also of a program that has ended: it may have left others behind in its group.
        _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _over(limit: str, cap: int) -> ChildFailure:
    fact = f"the output passed {cap:,} {limit}: raise the cap, or say less"
    return ChildFailure(fact, reason="limit", limit=limit)


_PR_SET_PDEATHSIG: Final = 1


def _dies_with_parent() -> Callable[[], None] | None:
    """Return what a new process does before its program; prepared here, for it must be short."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask
