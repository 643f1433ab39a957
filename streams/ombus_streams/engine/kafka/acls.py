"""Who may do what with which topic, per role, as data; and as commands of ``kafka-acls``. Pure.

Fleets that publish through a gateway have no right here at all. What an ACL cannot say, a gateway
must: which kinds of entries somebody may append (design.md section 13).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec
from ombus_schemas.topics import DEAD_LETTERS, ENTRIES, GRANTS, SUPERVISION

Role = Literal["gateway", "worker", "importer", "fleet", "reader", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

GROUPS: Final = "ombus"
"""Consumer groups of the workers begin so."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One permission of a role."""

    role: Role
    operation: str
    resource: Literal["topic", "group", "cluster"]
    name: str
    pattern: Literal["literal", "prefixed"] = "literal"


def rules(role: Role, *, direct: bool = False) -> tuple[Rule, ...]:
    """Return what ``role`` may do.

    ``direct`` lets fleets append entries themselves: they are trusted then not to write memory
    or grants, which no broker can check. They read, too: what may be on the log is looked for.
    """
    reads, writes, groups = _RIGHTS[role]
    if role == "fleet" and direct:
        reads, writes = (ENTRIES,), (ENTRIES,)
    found = [
        *(_rule(role, operation, name) for name in reads for operation in ("Describe", "Read")),
        *(_rule(role, operation, name) for name in writes for operation in ("Describe", "Write")),
    ]
    if groups:
        found.append(
            Rule(role=role, operation="Read", resource="group", name=GROUPS, pattern="prefixed")
        )
    if role == "operator":
        found += [
            _rule(role, operation, name)
            for name in _ALL
            for operation in ("Create", "Alter", "AlterConfigs", "DescribeConfigs")
        ]
        found.append(
            Rule(role=role, operation="Describe", resource="cluster", name="kafka-cluster")
        )
    return tuple(dict.fromkeys(found))


def commands(
    found: Sequence[Rule], principals: Mapping[Role, str], bootstrap_servers: str
) -> list[str]:
    """Return ``found`` as commands of ``kafka-acls``, as few as say it; they may be run twice."""
    operations: dict[tuple[Role, str, str, str], list[str]] = {}
    for rule in found:
        place = (rule.role, rule.resource, rule.name, rule.pattern)
        operations.setdefault(place, []).append(rule.operation)
    names: dict[tuple[Role, str, str, tuple[str, ...]], list[str]] = {}
    for (role, resource, name, pattern), several in operations.items():
        names.setdefault((role, resource, pattern, tuple(several)), []).append(name)
    lines: list[str] = []
    for (role, resource, pattern, allowed), places in names.items():
        words = ["kafka-acls", "--bootstrap-server", bootstrap_servers, "--add"]
        words += ["--allow-principal", f"'{principals.get(role, f'User:ombus-{role}')}'"]
        words += [f"--operation {operation}" for operation in allowed]
        if resource == "cluster":
            words.append("--cluster")
        else:
            words += [f"--{resource} {name}" for name in places]
            words.append(f"--resource-pattern-type {pattern}")
        lines.append(" ".join(words))
    return lines


_ALL: Final = (ENTRIES, GRANTS, SUPERVISION, DEAD_LETTERS)
_LOGS: Final = (ENTRIES, GRANTS, SUPERVISION)
_RIGHTS: Final[Mapping[Role, tuple[tuple[str, ...], tuple[str, ...], bool]]] = {
    # reads, writes, whether it joins consumer groups
    # A gateway folds what it answers for, as a worker of the group.
    "gateway": (_LOGS, (*_LOGS, DEAD_LETTERS), True),
    "worker": (_LOGS, (ENTRIES, SUPERVISION, DEAD_LETTERS), True),
    "importer": ((ENTRIES,), (ENTRIES, GRANTS), False),
    "fleet": ((), (), False),
    "reader": ((ENTRIES, SUPERVISION), (), False),
    "operator": (_ALL, _ALL, False),
}


def _rule(role: Role, operation: str, topic: str) -> Rule:
    return Rule(role=role, operation=operation, resource="topic", name=topic)
