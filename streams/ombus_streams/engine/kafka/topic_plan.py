"""What has to be done so that the topics are as ``ombus_schemas.topics`` declares them. Pure.

A topic is never made smaller: partition counts are for ever, and what is kept longer, or may be
larger, than declared stays so (design.md section 13).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
from ombus_schemas.topics import (
    PRODUCTION_REPLICAS,
    Topic,
    configs,
    production_configs,
)

Action = Literal["create", "configure", "open", "refuse", "keep"]
"""``open``: write ``om.log.created``. ``refuse``: nothing is done before a person has decided.
``keep``: it is as declared, or better."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as it should be."""

    name: str
    partitions: int
    replicas: int
    min_replicas: int
    """Fewer on an existing topic are refused."""
    configs: dict[str, str]
    opens_with_incarnation: bool


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as it is."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str]
    """What is in force, wherever it was set."""
    overrides: Mapping[str, str]
    """What was set on the topic itself."""
    unopened: tuple[int, ...] = ()
    """Partitions without any record."""
    foreign: tuple[int, ...] = ()
    """Partitions that open with another record than ``om.log.created``."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, or the reason why nothing is done."""

    topic: str
    action: Action
    detail: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The way from what is there to what is declared."""

    wanted: tuple[Wanted, ...]
    found: Mapping[str, Found]
    steps: tuple[Step, ...]

    @property
    def is_refused(self) -> bool:
        return any(step.action == "refuse" for step in self.steps)

    @property
    def is_done(self) -> bool:
        return all(step.action == "keep" for step in self.steps)


def wanted_topics(
    topics: Sequence[Topic],
    n_brokers: int,
    *,
    production: bool = False,
    tiered: bool = False,
) -> tuple[Wanted, ...]:
    """Return what ``topics`` ask for on a cluster of this size.

    ``tiered`` moves old segments of the topics that allow it to remote storage; the brokers must
    have one.
    """
    n_replicas = min(PRODUCTION_REPLICAS, n_brokers)
    return tuple(
        Wanted(
            name=topic.name,
            partitions=topic.partitions if production else topic.development_partitions,
            replicas=PRODUCTION_REPLICAS if production else n_replicas,
            min_replicas=PRODUCTION_REPLICAS if production else 1,
            configs={
                **(production_configs(topic) if production else configs(topic)),
                **({"remote.storage.enable": "true"} if tiered and topic.is_tiered else {}),
            },
            opens_with_incarnation=topic.opens_with_incarnation,
        )
        for topic in topics
    )


def plan_topics(wanted: Sequence[Wanted], found: Mapping[str, Found], n_brokers: int) -> Plan:
    """Return the steps from ``found`` to ``wanted``, in order."""
    steps: list[Step] = []
    for each in wanted:
        there = found.get(each.name)
        steps += _creation(each, n_brokers) if there is None else _changes(each, there)
    return Plan(wanted=tuple(wanted), found=found, steps=tuple(steps))


def config_changes(wanted: Wanted, found: Found) -> dict[str, str]:
    """Return what must be set, leaving what is more generous than declared as it is."""
    return {
        name: value
        for name, value in wanted.configs.items()
        if not _suffices(name, value, found.configs.get(name))
    }


_GENEROUS: Final = frozenset(
    {"max.message.bytes", "retention.ms", "retention.bytes", "min.insync.replicas"}
)
"""Larger is as good; -1 is without limit."""


def _creation(wanted: Wanted, n_brokers: int) -> list[Step]:
    if wanted.replicas > n_brokers:
        detail = f"needs {wanted.replicas} replicas, the cluster has {n_brokers} broker(s)"
        return [_step(wanted, "refuse", f"{detail}: add brokers, or apply without --production")]
    detail = f"{wanted.partitions} partitions, {wanted.replicas} replica(s), {_listed(wanted)}"
    steps = [_step(wanted, "create", detail)]
    if wanted.opens_with_incarnation:
        steps.append(_step(wanted, "open", f"om.log.created in {wanted.partitions} partitions"))
    return steps


def _changes(wanted: Wanted, found: Found) -> list[Step]:
    refused = [_step(wanted, "refuse", detail) for detail in _refusals(wanted, found)]
    if refused:
        return refused
    steps: list[Step] = []
    changes = config_changes(wanted, found)
    if changes:
        shown = ", ".join(
            f"{name} {found.configs.get(name, 'unset')} -> {value}"
            for name, value in sorted(changes.items())
        )
        steps.append(_step(wanted, "configure", shown))
    if wanted.opens_with_incarnation and found.unopened:
        detail = f"om.log.created in {len(found.unopened)} partitions that are empty"
        steps.append(_step(wanted, "open", detail))
    if not steps:
        detail = f"{found.partitions} partitions, {found.replicas} replica(s)"
        steps.append(_step(wanted, "keep", detail))
    return steps


def _refusals(wanted: Wanted, found: Found) -> list[str]:
    reasons: list[str] = []
    if found.partitions != wanted.partitions:
        reasons.append(
            f"has {found.partitions} partitions, {wanted.partitions} are declared; a change would "
            "move sessions to other partitions: replay into a new topic, then switch"
        )
    if found.replicas < wanted.min_replicas:
        reasons.append(
            f"has {found.replicas} replica(s), production needs {wanted.min_replicas}: "
            "raise them with kafka-reassign-partitions"
        )
    if wanted.opens_with_incarnation and found.foreign:
        reasons.append(
            f"partition {found.foreign[0]} holds records and does not open with om.log.created: "
            "replay it into a new topic"
        )
    return reasons


def _suffices(name: str, wanted: str, found: str | None) -> bool:
    if found is None or found == wanted:
        return found == wanted
    if name not in _GENEROUS:
        return False
    try:
        has, needs = int(found), int(wanted)
    except ValueError:
        return False
    return has == -1 or (needs != -1 and has >= needs)


def _step(wanted: Wanted, action: Action, detail: str) -> Step:
    return Step(topic=wanted.name, action=action, detail=detail)


def _listed(wanted: Wanted) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(wanted.configs.items()))
