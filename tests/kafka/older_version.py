"""A worker of the fold version before this one: ``python -m tests.kafka.older_version JSON``.

It folds as this one does; its rows, its group and its position rows say that they are older.
"""

import sys

from ombus_streams.memory import head

VERSION = head.FOLD_VERSION - 1

if __name__ == "__main__":
    # Before anybody else reads it.
    setattr(head, "FOLD_VERSION", VERSION)  # noqa: B010 - it is final for everybody else
    from tests.kafka import child

    child.start(sys.argv[1])
