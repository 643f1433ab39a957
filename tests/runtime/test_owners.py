"""Who owns a session: the first fact on its key of the grants topic."""

from ombus_schemas.codec import encode
from ombus_schemas.ids import session_key
from ombus_streams.runtime.owners import GrantsOwners

from tests.support.engine import ManualClock, MemoryLog
from tests.support.sessions import fact

KEY = session_key("t", "s")


def test_the_first_owner_counts_and_what_comes_later_is_seen() -> None:
    log = MemoryLog(ManualClock())
    owners = GrantsOwners(lambda: log)
    assert owners.owner_of(KEY) is None
    log.put(KEY, b"{")
    log.put(KEY, encode(fact("1", None, "session.owner", ownerId="ann")))
    assert owners.owner_of(KEY) == "ann"
    log.put(KEY, encode(fact("2", None, "session.owner", ownerId="bob")))
    assert owners.owner_of(KEY) == "ann"
    assert owners.owner_of(session_key("t", "other")) is None
