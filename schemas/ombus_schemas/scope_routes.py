"""The routes of work scopes: what is bound to them, and who else may read it."""

from typing import Final

import msgspec

from ombus_schemas import grant_api, scope_api
from ombus_schemas.route import PUBLISHERS, READ, READERS, SESSION, Param, Route

SHARING: Final = (
    Route(
        name="scope_grant",
        method="POST",
        path=SESSION + "/scopes/grant",
        meaning="Let other sessions read what is bound to a scope",
        roles=PUBLISHERS,
        answer=grant_api.GrantAnswer,
        body=grant_api.GrantRequest,
    ),
    Route(
        name="scope_revoke",
        method="POST",
        path=SESSION + "/scopes/revoke",
        meaning="Let them read it no longer, from the very next read on",
        roles=PUBLISHERS,
        answer=grant_api.GrantAnswer,
        body=grant_api.GrantRequest,
    ),
    Route(
        name="scope_grants",
        method="GET",
        path=SESSION + "/scopes/grants",
        meaning="List who may read which scope",
        roles=READERS,
        answer=grant_api.GrantsAnswer,
    ),
    Route(
        name="scope_access",
        method="GET",
        path=SESSION + "/scopes/access",
        meaning="List this gateway's last decisions over scopes the session owns or reads",
        roles=READERS,
        answer=grant_api.AccessAnswer,
        params=(
            Param("scope", "string", "Only this one."),
            Param("limit", "integer", "At most so many, 100 if not given.", 1),
        ),
    ),
    Route(
        name="scope_share",
        method="GET",
        path=SESSION + "/scopes/share",
        meaning="Return what the default leaf holds of a scope, for the gateway of a reader",
        roles=READERS,
        answer=grant_api.ShareAnswer,
        params=(
            Param(
                "scope",
                "string",
                "The scope.",
                required=True,
                pattern=r"^(?!.*\.\.)[A-Za-z0-9._:/-]{1,128}$",
            ),
            Param("memory", "string", "Also the sources of this memory."),
        ),
    ),
)
"""Shared scopes: who may read, and who has."""


def _scoping(command: str, meaning: str, body: type[msgspec.Struct]) -> Route:
    return Route(
        name=f"scope_{command}",
        method="POST",
        path=f"{SESSION}/scopes/{command}",
        meaning=meaning,
        roles=PUBLISHERS,
        answer=scope_api.ScopeAnswer,
        body=body,
    )


SCOPING: Final = (
    Route(
        name="scopes",
        method="GET",
        path=SESSION + "/scopes",
        meaning="List the work scopes of a leaf and say where the work stands",
        roles=READERS,
        answer=scope_api.ScopesAnswer,
        params=(*READ, Param("binds", "boolean", "Name what is bound, too.")),
    ),
    Route(
        name="scope_memory",
        method="GET",
        path=SESSION + "/scopes/memory",
        meaning="Return the memory that is visible from a scope",
        roles=READERS,
        answer=scope_api.ScopeMemoryAnswer,
        params=(
            *READ,
            Param("from", "string", "The scope to look from. Default: where the work stands."),
            Param(
                "include",
                "string",
                "`self`, `self+ancestors` (default), `self+descendants` or `lineage`.",
            ),
            Param("closed", "string", "`include`: closed scopes, too.", one_of=("include", "hide")),
            Param("kinds", "string", "Only scopes of these kinds, separated by commas."),
        ),
    ),
    _scoping("open", "Open a work scope", scope_api.ScopeOpening),
    _scoping("close", "Close a work scope", scope_api.ScopeChoice),
    _scoping("enter", "Make a work scope the place of the work", scope_api.ScopeChoice),
    _scoping("leave", "Go back one work scope", scope_api.ScopeLeaving),
    _scoping("bind", "Bind memory to a work scope", scope_api.ScopeBinding),
    _scoping("unbind", "Unbind memory from a work scope", scope_api.ScopeBinding),
)
"""The work scopes of a session."""
