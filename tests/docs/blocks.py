"""The fenced blocks of a page, and what running one of them means.

``console``: lines that begin with ``$ `` are run by a shell, what follows is what they print, with
``…`` for what differs or is left out (alone on a line: any lines). ``sh``: run, must succeed.
``python``: run, must succeed. ``toml``: parsed; named by its first line (``# ombus.toml``) it is
written there. ``json``: parsed. ``text`` and no language: nothing to run. A block whose first line
begins with ``# not run:`` says why.

All blocks of a page run one after the other, in one new folder without settings, in which
``ferry.jsonl`` is the sample transcript.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = ROOT / "services" / "ombus" / "cli" / "sample" / "ferry.jsonl"
NOT_RUN: Final = ("# not run:", "// not run:")
PROMPT: Final = "$ "
SECONDS: Final = 120
"""What one block may take."""
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_SPACES: Final = re.compile("  +")
"""Columns are as wide as their contents, so a run of spaces counts as one."""
_NAMED: Final = re.compile(r"# ([\w.-]+\.\w+)$")


class Block(msgspec.Struct, frozen=True):
    """A fenced block; ``line`` is where it begins."""

    page: str
    line: int
    language: str
    text: str

    @property
    def reason(self) -> str | None:
        """Why it is not run, if it says so."""
        first = self.text.partition("\n")[0]
        return first.partition(":")[2].strip() if first.startswith(NOT_RUN) else None


def pages() -> list[Path]:
    """Return the pages whose blocks are run, in a fixed order."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text("utf-8")
    name = str(page.relative_to(ROOT))
    return [
        Block(name, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in _FENCE.finditer(text)
    ]


def run(block: Block, folder: Path) -> None:
    """Run a block in ``folder``.

    Raises:
        AssertionError: it fails, or prints something else; the message names page and line.
    """
    if block.reason is not None:
        assert block.reason, f"{block.page}:{block.line}: not run, but it does not say why"
        return
    match block.language:
        case "console":
            for command, expected in commands(block):
                printed = _shell(block, command, folder)
                assert fits(expected, printed), (
                    f"{block.page}:{block.line}: {command}\nprints\n{printed}\nand not\n{expected}"
                )
        case "sh":
            _shell(block, f"set -eu\n{block.text}", folder)
        case "python":
            (folder / "block.py").write_text(block.text, "utf-8")
            _shell(block, f"{sys.executable} block.py", folder)
        case "toml":
            tomllib.loads(block.text)
            named = _NAMED.match(block.text.partition("\n")[0])
            if named is not None:
                (folder / named[1]).write_text(block.text, "utf-8")
        case "json":
            json.loads(block.text)
        case "text" | "":
            pass
        case other:
            raise AssertionError(f"{block.page}:{block.line}: nobody runs {other}: use text")


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with what it prints; ``> `` goes on with one."""
    command, expected = "", list[str]()
    for line in block.text.splitlines():
        if line.startswith(PROMPT):
            if command:
                yield command, "\n".join(expected)
            command, expected = line.removeprefix(PROMPT), []
        elif line.startswith("> ") and not expected:
            command += "\n" + line.removeprefix("> ")
        else:
            expected.append(line)
    if command:
        yield command, "\n".join(expected)


def fits(expected: str, printed: str) -> bool:
    """Say whether ``printed`` is what the page shows, with ``…`` for anything."""
    parts: list[str] = []
    for line in expected.strip().splitlines():
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(
                ".*".join(map(re.escape, _SPACES.sub(" ", line.rstrip()).split("…"))) + " ?\n"
            )
    said = _SPACES.sub(" ", printed.strip())
    return re.fullmatch("".join(parts), f"{said}\n" if said else "") is not None


def environment(folder: Path) -> dict[str, str]:
    """Return what a new user's shell has: no settings, no data, the installed commands."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OMBUS_")}
    return {
        **kept,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "OMBUS_DATA": str(folder / "data"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "160",
    }


def _shell(block: Block, command: str, folder: Path) -> str:
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)  # what it has started must not outlive it
            raise AssertionError(f"{block.page}:{block.line}: {command}\ndoes not end") from None
    # A finding is an answer, too: a console shows it, a script must succeed.
    worst = 1 if block.language == "console" else 0
    assert shell.returncode <= worst, (
        f"{block.page}:{block.line}: {command}\nends with {shell.returncode}\n{printed}"
    )
    return printed
