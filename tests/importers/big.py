"""The memory of a whole ``ombus import``: reading, admission, append and fold.

``python -m tests.importers.big --mb 1000 --cap 512`` writes a pi session of that size with one line
of 50 MB in it, imports it in a process of its own and prints what that process took at most. With
``--work`` the workers run too, which takes much longer and not much more.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

LONG_MB = 50
_WORDS = "the ferry leaves the pier at nine and the crane moves the red boxes "
_PEAK = re.compile(r"^peak (\d+)$", re.MULTILINE)
PEAK_KIB = """
def peak_kib():
    # Not ru_maxrss: a process inherits that from the one it was forked from.
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0])
"""
_RUN = f"""
import sys
from ombus.cli import main
{PEAK_KIB}
try:
    sys.exit(main())
finally:
    print("peak", peak_kib(), file=sys.stderr)
"""


class Result(msgspec.Struct):
    """What the import came to."""

    entries: int
    n_skipped: int
    peak_mb: int
    seconds: float


def write(path: Path, megabytes: int, long_mb: int) -> int:
    """Write a session of about that size; return the number of lines."""
    n_lines, size = 1, 0
    with path.open("w") as file:
        file.write('{"type":"session","version":3,"id":"big","cwd":"/"}\n')
        parent: str | None = None
        while size < megabytes * 1_000_000:
            entry_id = f"{n_lines:08x}"
            is_long = n_lines == 5 and long_mb > 0
            text = "x" * (long_mb * 1_000_000) if is_long else f"{n_lines} " + _WORDS * 120
            body = {"role": "user" if n_lines % 2 else "assistant", "content": text}
            row = {"type": "message", "id": entry_id, "parentId": parent, "message": body}
            line = json.dumps(row) + "\n"
            file.write(line)
            parent, n_lines, size = entry_id, n_lines + 1, size + len(line)
    return n_lines


def run(base: Path, megabytes: int, long_mb: int, *options: str) -> Result:
    """Import such a file in a process of its own."""
    path = base / "big.jsonl"
    write(path, megabytes, long_mb)
    started = time.monotonic()
    command = [sys.executable, "-c", _RUN, "--data", str(base / "data"), "import", str(path)]
    done = subprocess.run(
        [*command, "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    intake = msgspec.json.decode(done.stdout.splitlines()[0])
    found = _PEAK.search(done.stderr)
    assert found is not None
    return Result(
        entries=intake["entries"],
        n_skipped=intake["nSkipped"],
        peak_mb=int(found[1]) // 1024,
        seconds=time.monotonic() - started,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1_000)
    parser.add_argument("--cap", type=int, default=512, help="MiB the process may take")
    parser.add_argument("--work", action="store_true")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="ombus-import-big-"))
    try:
        result = run(base, options.mb, LONG_MB, "--work" if options.work else "--no-work")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(
        f"{options.mb:,} MB with a line of {LONG_MB} MB: {result.entries:,} entries, "
        f"{result.n_skipped} skipped, in {result.seconds:.0f} s; "
        f"at most {result.peak_mb} MiB, cap {options.cap} MiB"
    )
    return 0 if result.peak_mb <= options.cap else 1


if __name__ == "__main__":
    sys.exit(main())
