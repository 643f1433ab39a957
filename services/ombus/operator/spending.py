"""What runs have cost, over all partitions of a data folder, whoever folds it."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec
from ombus_streams.runtime.usage import Spender, Spent, days, read_day

from ombus.wiring import Engine

By = Literal["day", "tenant", "worker", "provider", "model"]
BY: Final[tuple[By, ...]] = ("day", "tenant", "worker", "provider", "model")


class Account(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one group of runs has cost."""

    group: tuple[str, ...]
    """The values of what was grouped by, in that order."""
    runs: int
    failed: int
    turns: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reserved_tokens: int
    """Of runs under way, or of a process that died in them: they count as spent."""


def spending(engine: Engine, by: Sequence[By], since: str = "", until: str = "~") -> list[Account]:
    """Return what was spent from day ``since`` to day ``until``, both included, in groups."""
    found: dict[tuple[str, ...], Spent] = {}
    for partition in range(engine.log.partitions):
        with engine.state.snapshot(partition) as rows:
            for day in days(rows):
                if not since <= day <= until:
                    continue
                for spender, spent in read_day(rows, day):
                    group = tuple(_VALUE[name](day, spender) for name in by)
                    found[group] = found.get(group, Spent()) + spent
    return [
        Account(
            group=group,
            runs=spent.n_runs,
            failed=spent.n_failed,
            turns=spent.n_turns,
            input_tokens=spent.input_tokens,
            cached_tokens=spent.cached_tokens,
            output_tokens=spent.output_tokens,
            reserved_tokens=spent.reserved_tokens,
        )
        for group, spent in sorted(found.items())
    ]


_VALUE: Final[dict[By, Callable[[str, Spender], str]]] = {
    "day": lambda day, _: day,
    "tenant": lambda _, spender: spender.tenant,
    "worker": lambda _, spender: spender.worker,
    "provider": lambda _, spender: spender.provider,
    "model": lambda _, spender: spender.model,
}
