"""What a worker process is for: whose effects it performs, and whether it writes dead letters."""

from typing import Final

import msgspec

from ombus_streams.memory import duties


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of worker; each has its own consumer group and its own rows."""

    name: str
    workers: tuple[duties.Worker, ...] = ()
    """Whose effects it decides for and performs."""
    emits: bool = False
    """Whether it writes dead letters; of the roles of a system exactly one kind does."""


ALL: Final = "all"
PROJECTOR: Final = "projector"
ROLES: Final = {
    role.name: role
    for role in (
        *(Role(name=worker, workers=(worker,)) for worker in duties.WORKERS),
        Role(name=PROJECTOR, emits=True),
        Role(name=ALL, workers=duties.WORKERS, emits=True),
    )
}
"""``all`` is a role of its own: one fold serves every worker, where the others fold one each."""
