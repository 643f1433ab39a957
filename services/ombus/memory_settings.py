"""What holds for a session's memory when several say something: the session, files, environment.

From the strongest: what the session itself was told, the project's file, the user's file, the
environment, which may say ``passive`` and nothing else. A group of a stronger one replaces the
whole group of a weaker one (S17). Only facts decide, so what comes out is written to the session;
what the session had said is kept beside it, to be the strongest the next time, too.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ombus_schemas.jsontext import JsonObject
from ombus_schemas.resolution import resolve_settings
from ombus_schemas.settings import MemorySettings, SettingOutOfRange, SettingRemoved, settings_json

PASSIVE: Final = "OMBUS_PASSIVE"
WRITTEN_BY: Final = "writtenBy"
FILES: Final = "files"
SESSION: Final = "session"

_TRUE: Final = ("true", "1", "yes", "on")
_FALSE: Final = ("false", "0", "no", "off", "")


class BadPassive(ValueError):
    """``OMBUS_PASSIVE`` is neither true nor false."""


def of_environment(environ: Mapping[str, str]) -> JsonObject:
    """Return what the environment says: ``passive`` or nothing.

    Raises:
        BadPassive: a word that is neither true nor false.
    """
    said = environ.get(PASSIVE)
    if said is None:
        return {}
    word = said.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise BadPassive(f"is {said!r}: say true or false")
    return {"passive": word in _TRUE}


def layered(groups: Sequence[JsonObject]) -> JsonObject:
    """Return what ``groups`` say together, from the weakest to the strongest."""
    said: JsonObject = {}
    for group in groups:
        said |= group
    return said


def opening(said: JsonObject, written: JsonObject) -> JsonObject | None:
    """Return the settings to write to a session whose last ones are ``written``; ``None`` if they

    hold already. ``said`` is what files and environment say. Settings of a session that make no
    sense are what they are: nothing is written over them.
    """
    is_ours = written.get(WRITTEN_BY) == FILES
    kept = written.get(SESSION) if is_ours else written
    session = kept if isinstance(kept, dict) else {}
    if not said and not is_ours:
        return None
    wanted = resolved({**said, **session})
    if wanted is None or wanted == resolved(written):
        return None
    return {**settings_json(wanted), WRITTEN_BY: FILES, SESSION: session}


def workspaces_of(written: JsonObject) -> frozenset[str]:
    """Return the sessions to which ``written`` gives, now or once files say something else."""
    found: set[str] = set()
    for group in (written, written.get(SESSION)):
        funnel = group.get("funnel") if isinstance(group, dict) else None
        workspace = funnel.get("workspace") if isinstance(funnel, dict) else None
        if isinstance(workspace, str):
            found.add(workspace)
    return frozenset(found)


def giving_only_to(written: JsonObject, allowed: frozenset[str]) -> JsonObject:
    """Return ``written`` without any funnel to another session than those ``allowed``."""
    found = {
        key: value
        for key, value in written.items()
        if key != "funnel" or workspaces_of({key: value}) <= allowed
    }
    session = found.get(SESSION)
    if isinstance(session, dict):
        found[SESSION] = giving_only_to(session, allowed)
    return found


def resolved(said: JsonObject) -> MemorySettings | None:
    """Return what ``said`` means, or ``None`` if it is refused."""
    try:
        return resolve_settings(said)
    except (SettingRemoved, SettingOutOfRange):
        return None
