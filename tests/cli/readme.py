"""The demo's output as README shows it: ``python -m tests.cli.readme`` writes it there anew."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
WIDTH = 116
SHOWN = {"Reflections": 2, "Observations": 4}
"""How many items of the memory README shows."""
_BLOCK = re.compile(r"(<!-- demo: [^\n]*\n```\n)(.*?)(```\n<!-- demo ends -->)", re.S)


def shortened(output: str) -> str:
    """Return the output with most of the memory left out, and no line wider than a page."""
    return "".join(f"{_cut(line)}\n" for line in _lines(output.strip().splitlines()))


def shown() -> str:
    """Return what README shows."""
    found = _BLOCK.search(README.read_text("utf-8"))
    assert found is not None, "README has lost its demo block"
    return found[2]


def without_times(text: str) -> str:
    """Return the text with what no two runs agree on blanked out."""
    text = re.sub(r"\b\d[\d.,]* (ms|s)\b", r"N \1", text)
    return re.sub(r"\b(?=[a-f0-9]*[a-f])[a-f0-9]{16}\b", "N", text)


def _lines(lines: list[str]) -> Iterator[str]:
    left: int | None = None
    is_left_out = False
    for line in lines:
        if line in SHOWN:
            left, is_left_out = SHOWN[line], False
        elif not line.startswith("  "):
            left = None
        elif left is not None and line.startswith("  ["):
            left -= 1
        if left is None or left >= 0:
            yield line
        elif not is_left_out:
            is_left_out = True
            yield "  …"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def main() -> None:
    """Run the demo and put its output into README."""
    done = subprocess.run(
        [sys.executable, "-m", "ombus.cli", "demo"], check=True, capture_output=True, text=True
    )
    block = shortened(done.stdout)
    text = README.read_text("utf-8")
    README.write_text(_BLOCK.sub(lambda found: found[1] + block + found[3], text), "utf-8")


if __name__ == "__main__":
    main()
