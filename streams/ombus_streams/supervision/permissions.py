"""May a child call this tool? Permissions are ANDed, the first denial wins (S23.2)."""

from collections.abc import Sequence

from ombus_schemas.supervision import Permission

from ombus_streams.supervision.limits import Limits


def denial(
    permissions: Sequence[Permission], tool: str, n_calls: int, limits: Limits
) -> str | None:
    """Return why ``tool`` may not be called after ``n_calls`` calls, or ``None``.

    The counter of the delegation is the last permission of all.
    """
    for permission in permissions:
        if tool in permission.deny:
            return f"{tool} is denied"
        if permission.allow is not None and tool not in permission.allow:
            return f"{tool} is not among the allowed tools"
    max_calls = limits.get("toolCalls")
    if max_calls is not None and n_calls >= max_calls:
        return f"{max_calls:,} tool calls are made, which is the limit"
    return None
