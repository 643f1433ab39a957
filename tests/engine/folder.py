"""A process that commits batches until it is killed, and says how far it came.

``python -m tests.engine.folder FOLDER``: after each batch of ten it prints the next offset.
"""

import sys
from pathlib import Path

from ombus_streams.engine.embedded.store import StateFile
from ombus_streams.runtime.ports import PositionRow


def main(folder: str) -> None:
    store = StateFile(Path(folder)).store(0)
    expected = None
    for start in range(0, 1_000_000, 10):
        end = start + 10
        rows = {b"row%08d" % number: b"x" for number in range(start, end)}
        rows[b"head"] = b"%d" % end
        position = PositionRow(incarnation="i", partition=0, next_offset=end, fold_version=1)
        store.commit(rows, expected, position, outbox=[b"%d" % end])
        expected = position
        print(end, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
