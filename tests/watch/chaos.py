"""``ombus watch`` killed, its files rotated, cut and written anew: each complete line once.

``python -m tests.watch.chaos --rounds 200`` prints what happened and ends 1 if a line is lost or
told twice. A line that is cut away before anybody could read it is no loss: before a file is cut,
the watcher is let to read it; what kills and rotations meet is whatever there is.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from ombus.operator.desk import Desk
from ombus.operator.verification import verify_folder
from ombus.settings import ProcessSettings
from ombus.watch.positions import FileId, Positions
from ombus_schemas.codec import decode
from ombus_schemas.jsontext import JsonObject
from ombus_streams.memory.session import Session

WAIT_S = 60.0


class Writer:
    """An agent that writes one file, line by line, in pieces that end anywhere."""

    def __init__(self, folder: Path, name: str, chance: random.Random) -> None:
        self.path, self._name, self._chance = folder / f"{name}.jsonl", name, chance
        self.markers: list[str] = []
        self.n_rotated = 0
        self._parent: str | None = None
        self._begun = b""
        if name == "pi":
            self._put({"type": "session", "version": 3, "id": "chaos-pi", "cwd": "/"})
        if name == "codex":
            self._put({"type": "session_meta", "payload": {"id": "chaos-codex"}})

    def write(self, n: int) -> None:
        """Write ``n`` lines, the last one perhaps only in part."""
        for _ in range(n):
            self.finish()
            self._put(self._row())
        if self._chance.random() < 0.5:
            self.finish()
            whole = json.dumps(self._row()).encode() + b"\n"
            cut = self._chance.randrange(1, len(whole))
            self._append(whole[:cut])
            self._begun = whole[cut:]

    def finish(self) -> None:
        """Write the rest of a line that was begun."""
        self._append(self._begun)
        self._begun = b""

    def rotate(self) -> None:
        """Give the file another name and go on in a new one."""
        self.finish()
        self.n_rotated += 1
        self.path.rename(self.path.with_name(f"{self.path.name}.{self.n_rotated}"))
        self._put(self._row())

    def cut(self) -> None:
        """Empty the file in place."""
        os.truncate(self.path, 0)
        self._put(self._row())

    def write_anew(self) -> None:
        """Write everything again, and one line more."""
        self.finish()
        content = self.path.read_bytes()
        self.path.write_bytes(content + json.dumps(self._row()).encode() + b"\n")

    def _row(self) -> JsonObject:
        marker = f"<{self._name} {len(self.markers)}>"
        self.markers.append(marker)
        role = "user" if len(self.markers) % 2 else "assistant"
        if self._name == "pi":
            entry_id = f"{len(self.markers):08x}"
            row: JsonObject = {
                "type": "message",
                "id": entry_id,
                "parentId": self._parent,
                "message": {"role": role, "content": marker},
            }
            self._parent = entry_id
            return row
        if self._name == "codex":
            kind = "input_text" if role == "user" else "output_text"
            content: list[JsonObject] = [{"type": kind, "text": marker}]
            body: JsonObject = {"type": "message", "role": role, "content": [*content]}
            return {"type": "response_item", "payload": body}
        return {"role": role, "content": marker}

    def _put(self, row: JsonObject) -> None:
        self._append(json.dumps(row).encode() + b"\n")

    def _append(self, content: bytes) -> None:
        if content:
            with self.path.open("ab") as file:
                file.write(content)


class Watching:
    """The process that watches."""

    def __init__(self, files: Path, data: Path) -> None:
        self._arguments = [sys.executable, "-m", "ombus.cli", "--data", str(data)]
        self._arguments += ["--log-level", "warning", "watch", str(files), "--backfill"]
        self.data = data
        self._process: subprocess.Popen[bytes] | None = None
        self.n_kills = 0

    def start(self, *options: str) -> None:
        command = [*self._arguments, "--interval", "0.05", "--settle", "1", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.n_kills += 1

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(WAIT_S)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(2 * WAIT_S)

    def has_read(self, path: Path) -> None:
        """Return once everything in the file is on the log."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            stat = path.stat()
            if (self.data / "watch.db").exists():
                positions = Positions(self.data)
                position = positions.get(FileId(stat.st_dev, stat.st_ino))
                positions.close()
                if position is not None and position.offset == stat.st_size:
                    return
            time.sleep(0.02)
        raise TimeoutError(f"{path} was not read to its end in {WAIT_S:g} s")


class Result(msgspec.Struct):
    """What a run came to."""

    lines: int
    lost: list[str]
    twice: list[str]
    repeated: int
    """Appends of an id that was there: allowed, they fold to nothing."""
    kills: int
    happened: dict[str, int]
    is_equal: bool


def run(base: Path, rounds: int, seed: int) -> Result:
    """Do ``rounds`` rounds of writing, mischief and kills under ``base``."""
    chance = random.Random(seed)
    files, data = base / "files", base / "data"
    files.mkdir(parents=True)
    writers = [Writer(files, name, chance) for name in ("pi", "codex", "chat")]
    watching = Watching(files, data)
    happened: Counter[str] = Counter()
    watching.start()
    for _ in range(rounds):
        for writer in writers:
            writer.write(chance.randrange(1, 6))
        writer = chance.choice(writers)
        match chance.choice(("rotate", "cut", "anew", "nothing")):
            case "rotate":
                writer.rotate()
                happened["rotated"] += 1
            case "cut":
                writer.finish()
                watching.has_read(writer.path)
                writer.cut()
                happened["cut"] += 1
            case "anew":
                writer.finish()
                watching.has_read(writer.path)
                writer.write_anew()
                happened["written anew"] += 1
            case _:
                pass
        time.sleep(chance.random() * 0.8)
        if chance.random() < 0.7:
            watching.kill()
            watching.start()
    for writer in writers:
        writer.finish()
        watching.has_read(writer.path)
    assert watching.stop() == 0
    watching.start("--once")
    assert watching.wait() == 0
    return _judged(data, writers, watching.n_kills, dict(happened))


def _judged(data: Path, writers: list[Writer], n_kills: int, happened: dict[str, int]) -> Result:
    desk = Desk(ProcessSettings(data=str(data)))
    try:
        desk.catch_up()
        ids: dict[str, list[str]] = {}
        n_repeated = 0
        for key in desk.engine.sessions():
            seen: set[str] = set()
            with desk.engine.reading(key) as live:
                for record in desk.engine.log.of_key(key):
                    entry = decode(record.value or b"")
                    n_repeated += entry.id in seen
                    if entry.id not in seen and _is_attached(live.session, entry.id):
                        for block in entry.message.content if entry.message else ():
                            ids.setdefault(str(block.get("text")), []).append(entry.id)
                    seen.add(entry.id)
        markers = [marker for writer in writers for marker in writer.markers]
        return Result(
            lines=len(markers),
            lost=[marker for marker in markers if marker not in ids],
            twice=[marker for marker in markers if len(ids.get(marker, ())) > 1],
            repeated=n_repeated,
            kills=n_kills,
            happened=happened,
            is_equal=verify_folder(desk.engine).is_equal,
        )
    finally:
        desk.engine.close()


def _is_attached(session: Session, entry_id: str) -> bool:
    place = session.place_of(entry_id)
    return place is not None and place.place == "chain"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="ombus-watch-chaos-"))
    try:
        started = time.monotonic()
        result = run(base, options.rounds, options.seed)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(
        f"{options.rounds} rounds in {time.monotonic() - started:.0f} s: {result.lines:,} lines, "
        f"{len(result.lost)} lost, {len(result.twice)} twice; {result.kills} kills, "
        + ", ".join(f"{count} {what}" for what, count in sorted(result.happened.items()))
        + f"; {result.repeated} repeated appends folded to nothing; "
        + f"verify {'equal' if result.is_equal else 'DIFFERENT'}"
    )
    return 1 if result.lost or result.twice or not result.is_equal else 0


if __name__ == "__main__":
    sys.exit(main())
