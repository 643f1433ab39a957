"""Ids: how they are spelled, and how those that follow from content or cause are made.

The grammars are those of design.md sections 3 and 15 and of S18 and S23.2; every match is a full
match, so a trailing newline is never valid.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from ombus_schemas.jsontext import JsonValue, json_text, trim, utf16_length
from ombus_schemas.limits import MAX_ID_CHARS

SYSTEM_TENANT: Final = "_system"
"""Reserved: the tenant of ``om.log.created``; nobody's sessions live there."""
WORKER_ID_PREFIX: Final = "om:"
"""Entry ids that begin with it belong to workers; admission refuses them from anybody else."""
RUN_ID_DIGITS: Final = 24
ROOT_SCOPE: Final = "session"
"""The implicit scope: always open, parent of every scope that names none (S18)."""

_KEY_PART: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_RESULT_ID: Final = re.compile(r"om:[a-z]{1,32}:[0-9a-f]{24}")
_SCOPE_ID: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_BIND_REF: Final = re.compile(r"(?:om|reflection):[a-f0-9]{12}")
_CHILD_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_MAX_PRINCIPAL_UNITS: Final = 256


def memory_id(parts: list[JsonValue]) -> str:
    """Return the first twelve hex digits of the SHA-256 of the JSON text of ``parts`` (S4).

    Order and repeats count, nothing is normalised. Taken before redaction, so a stored item need
    not hash to its id.
    """
    return sha256(json_text(parts).encode()).hexdigest()[:12]


def observation_id(content: str, source_ids: Sequence[str]) -> str:
    """Return the id of an observation of ``content`` in ``source_ids``, in their order."""
    return memory_id([content, list(source_ids)])


def reflection_id(content: str, support_ids: Sequence[str]) -> str:
    """Return the id of a reflection of ``content`` over ``support_ids``, in their order."""
    return memory_id([content, list(support_ids)])


def hash_parts(*parts: str | None | Sequence[str | None]) -> str:
    """Return the SHA-256 hex digest over ``parts``, each with its length before it.

    A part is its UTF-8 length in decimal, ``:``, its bytes; an absent one is ``-:``; a list is
    its length as a part, then its parts (design.md section 15). Unambiguous among calls of one
    shape: which arguments are lists is fixed where an id is defined.
    """
    digest = sha256()
    for part in parts:
        if part is None or isinstance(part, str):
            digest.update(_part(part))
        else:
            digest.update(_part(str(len(part))))
            for item in part:
                digest.update(_part(item))
    return digest.hexdigest()


def run_id(
    worker: str,
    tenant: str,
    session: str,
    cause: str,
    base: str | None,
    seen: str | None,
    anchor: str,
    input_ids: Sequence[str],
) -> str:
    """Return the id of the run these inputs earn; asking twice asks for the same run.

    ``cause`` is ``threshold``, or the id of the flush, reflection or trigger entry; every input
    counts, because two pools may share their ends (design.md section 5, pitfalls.md 6).
    """
    parts = hash_parts(worker, tenant, session, cause, base, seen, anchor, input_ids)
    return parts[:RUN_ID_DIGITS]


def result_entry_id(worker: str, run: str) -> str:
    """Return the id of the entry that carries the result of a run."""
    return f"{WORKER_ID_PREFIX}{worker}:{run}"


def is_result_entry_id(text: str) -> bool:
    """Say whether ``text`` is the id of an entry that carries the result of a run."""
    return _RESULT_ID.fullmatch(text) is not None


def delegation_id(tenant: str, session: str, request_entry_id: str) -> str:
    """Return the id of the delegation that an entry of the parent session asks for."""
    return hash_parts(tenant, session, request_entry_id)[:RUN_ID_DIGITS]


def session_key(tenant: str, session: str) -> bytes:
    """Return the record key ``tenant/session``; unambiguous, since no part may hold a slash."""
    return f"{tenant}/{session}".encode("utf-8", "surrogatepass")


def split_key(key: bytes) -> tuple[str, str] | None:
    """Return tenant and session of a record key, or ``None`` if it is not one."""
    try:
        tenant, slash, session = key.decode("ascii").partition("/")
    except UnicodeDecodeError:
        return None
    return (tenant, session) if slash and is_key_part(tenant) and is_key_part(session) else None


def is_key_part(text: str) -> bool:
    """Say whether ``text`` may be a tenant or session id."""
    return _KEY_PART.fullmatch(text) is not None


def is_tenant_id(text: str) -> bool:
    """Say whether ``text`` may be the tenant of a session; the system's own is reserved."""
    return is_key_part(text) and text != SYSTEM_TENANT


def is_entry_id(text: str) -> bool:
    """Say whether ``text`` is 1 to 200 printable ASCII characters without space."""
    return (
        text.isascii() and text.isprintable() and 0 < len(text) <= MAX_ID_CHARS and " " not in text
    )


def is_scope_id(text: str) -> bool:
    """Say whether ``text`` may name a work scope; the reserved ``session`` is spelled right too."""
    return _SCOPE_ID.fullmatch(text) is not None and ".." not in text


def is_principal_id(text: str) -> bool:
    """Say whether ``text`` may name somebody who is granted a scope (S18)."""
    return (
        0 < utf16_length(text) <= _MAX_PRINCIPAL_UNITS
        and text == trim(text)
        and _CONTROL.search(text) is None
    )


def is_bind_ref(text: str) -> bool:
    """Say whether ``text`` is ``om:`` or ``reflection:`` and a memory id."""
    return _BIND_REF.fullmatch(text) is not None


def is_child_id(text: str) -> bool:
    """Say whether ``text`` may name a child, supervisor or delegation (S23.2)."""
    return _CHILD_ID.fullmatch(text) is not None


def observation_ref(observation: str) -> str:
    """Return the ref that binds an observation to a scope."""
    return f"om:{observation}"


def reflection_ref(reflection: str) -> str:
    """Return the ref that binds a reflection to a scope."""
    return f"reflection:{reflection}"


def _part(part: str | None) -> bytes:
    if part is None:
        return b"-:"
    raw = part.encode("utf-8", "surrogatepass")
    return b"%d:%b" % (len(raw), raw)
