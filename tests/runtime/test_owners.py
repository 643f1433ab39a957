"""Who owns a session: the first fact on its key of the grants topic."""

from pathlib import Path
from unittest import mock

import pytest
from ombus_schemas.codec import encode
from ombus_schemas.ids import session_key
from ombus_streams.engine.embedded.log import SqliteLog
from ombus_streams.runtime.errors import RetryableError
from ombus_streams.runtime.owners import GrantsOwners
from ombus_streams.runtime.ports import Draft

from tests.support.engine import ManualClock
from tests.support.sessions import fact

KEY = session_key("t", "s")


def test_the_first_owner_counts_and_what_comes_later_is_seen(tmp_path: Path) -> None:
    owners = GrantsOwners(lambda: SqliteLog(tmp_path, ManualClock()))
    log = SqliteLog(tmp_path, ManualClock())

    def says(value: bytes) -> None:
        log.append([Draft(key=KEY, value=value)])

    assert owners.owner_of(KEY) is None
    says(b"{")
    says(encode(fact("1", None, "session.owner", ownerId="ann")))
    assert owners.owner_of(KEY) == "ann"
    says(encode(fact("2", None, "session.owner", ownerId="bob")))
    assert owners.owner_of(KEY) == "ann"
    assert owners.owner_of(session_key("t", "other")) is None
    owners.close()
    log.close()


def test_a_log_that_gives_less_than_it_has_leaves_nobody_unowned(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path, ManualClock())
    log.append([Draft(key=KEY, value=encode(fact("1", None, "session.owner", ownerId="ann")))])
    owners = GrantsOwners(lambda: log)
    with mock.patch.object(log, "read", return_value=[]), pytest.raises(RetryableError):
        owners.owner_of(KEY)
    assert owners.owner_of(KEY) == "ann"
    owners.close()
