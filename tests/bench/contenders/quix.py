"""Quix Streams with a stateful fold and its changelog; it runs in an environment of its own."""

import logging
import sys
import threading
from typing import Any

import msgspec
from quixstreams import Application, State  # type: ignore[import-not-found]

from tests.bench.contenders.counting import Stopwatch, Told, counted


def main(said: str) -> None:
    told = msgspec.json.decode(said, type=Told)
    watch = Stopwatch(told.n_records)
    app: Any = Application(
        broker_address=told.bootstrap,
        consumer_group=told.group,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=told.folder,
        loglevel=logging.ERROR,
    )
    topic = app.topic(told.topic, key_deserializer="bytes", value_deserializer="bytes")

    def count(value: bytes, state: State) -> bytes:
        watch.begin()
        found = counted(value, state.get_bytes("row", None))
        state.set_bytes("row", found)
        if watch.done(1):
            threading.Thread(target=app.stop).start()
        return found

    app.dataframe(topic).apply(count, stateful=True)
    app.run()
    print(msgspec.json.encode(watch.read()).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
