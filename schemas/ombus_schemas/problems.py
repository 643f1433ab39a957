"""Every problem that a gateway answers with."""

from collections.abc import Mapping
from typing import Final

STATUS_BY_CODE: Final[Mapping[str, tuple[int, str]]] = {
    "bad_request": (400, "The request cannot be read"),
    "bad_position": (400, "That is no position of this session"),
    "unauthorized": (401, "A valid token is needed"),
    "not_the_owner": (403, "Somebody else owns the grants of this session"),
    "not_found": (404, "There is nothing here, or nothing for you"),
    "no_leaf": (404, "The session has no such leaf"),
    "method_not_allowed": (405, "This cannot be done here"),
    "body_timeout": (408, "The body did not come in time"),
    "conflict": (409, "The leaf was not the expected one any more"),
    "scope_refused": (409, "The scopes of this leaf do not allow it"),
    "position_gone": (410, "The position belongs to another log"),
    "too_large": (413, "The body is too large"),
    "rejected": (422, "Some entries were not taken"),
    "scope_limit": (422, "That would pass a cap of the work scopes"),
    "too_many_requests": (429, "Too many requests"),
    "internal": (500, "A bug of ours"),
    "behind": (503, "The fold has not come so far yet"),
    "moving": (503, "The session moves to another gateway"),
    "busy": (503, "Too much is under way"),
    "storage": (503, "The log cannot be written or read now"),
}
"""Its status and title, by the code that clients decide on."""
