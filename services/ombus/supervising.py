"""Whom sessions may delegate to, as the settings files say it.

::

    [supervision]
    before = "agency.rules:may_start"

    [supervision.limits]
    activeChildren = 8

    [supervision.children.scout]
    report = "milestones"
    deny = ["bash"]

    [supervision.children.scout.limits]
    timeoutMs = 600_000

Process settings of whoever supervises; they never reach a fold. A child that is not named here may
be asked by nobody.
"""

from typing import Final

import msgspec
from ombus_schemas.ids import is_child_id
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.supervision import Permission, Report
from ombus_streams.runtime.hooks import SECONDS
from ombus_streams.supervision.checks import ChildPolicy, HostPolicy
from ombus_streams.supervision.limits import host_limits

from ombus.tables import BadTable, read_table

TABLE: Final = "supervision"


class ChildSettings(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """``[supervision.children.NAME]``."""

    limits: dict[str, int] = {}
    report: Report = "milestones"
    """The loudest report it may give."""
    every_turns: int | None = None
    session: bool = False
    """Whether it may outlive the task it was asked for."""
    budget_share: float | None = None
    children: tuple[str, ...] = ()
    """Whom it may ask itself."""
    allow: tuple[str, ...] | None = None
    """The tools it may call; every one by default."""
    deny: tuple[str, ...] = ()


class SupervisionSettings(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    """``[supervision]``."""

    children: dict[str, ChildSettings] = {}
    limits: dict[str, int] = {}
    before: str | None = None
    """``module:function``, asked before a child may start."""
    after: str | None = None
    """``module:function``, told how a delegation ended."""
    hook_seconds: float = SECONDS

    def policy(self) -> HostPolicy:
        """Return what the checks go by."""
        return HostPolicy(
            children={name: _policy(child) for name, child in self.children.items()},
            limits=host_limits(self.limits),
            has_hook=self.before is not None,
        )


def supervision_settings(table: JsonValue) -> SupervisionSettings:
    """Return what the table says.

    Raises:
        BadTable: by its path.
    """
    found = read_table(SupervisionSettings, table, TABLE)
    _check_limits(found.limits, f"{TABLE}.limits")
    for name, child in found.children.items():
        place = f"{TABLE}.children.{name}"
        if not is_child_id(name):
            raise BadTable(place, "is no name of a child")
        _check_limits(child.limits, f"{place}.limits")
        if child.budget_share is not None and not 0 < child.budget_share <= 1:
            raise BadTable(f"{place}.budget-share", "is no number above 0 and at most 1")
        unknown = [each for each in child.children if each not in found.children]
        if unknown:
            raise BadTable(f"{place}.children", f"names {unknown[0]}, which is no child")
    return found


def _check_limits(limits: dict[str, int], place: str) -> None:
    try:
        host_limits(limits)
    except ValueError as error:
        raise BadTable(f"{place}:", str(error)) from error


def _policy(child: ChildSettings) -> ChildPolicy:
    permissions: tuple[Permission, ...] = ()
    if child.allow is not None or child.deny:
        permissions = (Permission(allow=child.allow, deny=child.deny),)
    return ChildPolicy(
        limits=child.limits,
        report=child.report,
        every_turns=child.every_turns,
        session=child.session,
        budget_share=child.budget_share,
        children=child.children,
        permissions=permissions,
    )
