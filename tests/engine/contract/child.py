"""A process that appends until it is killed or done, and says what was acknowledged.

``python -m tests.engine.contract.child ENGINE FOLDER NAME APPENDS``: each line of its output is
``<partition> <offset> <value>`` of one acknowledged record, flushed after the acknowledgement.
"""

import sys
import threading
from pathlib import Path

from ombus_streams.runtime.ports import Draft

from tests.engine.contract.engines import ENGINES, ManualClock

THREADS = 4
PER_APPEND = 3


def main(engine: str, folder: str, name: str, appends: str) -> None:
    log = ENGINES[engine].log(Path(folder), ManualClock())
    said = threading.Lock()

    def run(thread: int) -> None:
        key = f"t/{name}-{thread}".encode()
        for number in range(int(appends)):
            values = [f"{name}-{thread}-{number}-{part}" for part in range(PER_APPEND)]
            positions = log.append([Draft(key=key, value=value.encode()) for value in values])
            with said:
                for value, position in zip(values, positions, strict=True):
                    print(position.partition, position.offset, value)
                sys.stdout.flush()

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
