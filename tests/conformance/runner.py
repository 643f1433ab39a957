"""Run every conformance file of a folder: ``python -m tests.conformance.runner FOLDER``.

Prints a line per failure and ends with ``N passed, N failed``; exit status 1 if anything failed.

The adapter protocol: a file ``<area>.json`` is run by ``tests/conformance/areas/<area>.py``, which
exports ``run(case: JsonObject) -> Result``. It gets a case's ``input``, calls the project's public
functions with the options that ask for the reference's rule (design.md section 12, last column),
and returns their result as a JSON value in the shape of the vectors, or ``UNDEFINED``. What it
raises becomes ``{"error": {"name", "message"}}`` by ``cases.failure``, which also documents how our
exceptions map to the reference's classes; where an error is one result among several (a list of
calls), the adapter puts ``failure(raised)`` there. An unknown ``op`` raises ``UnknownOp(op)``, and
that, like an area without a module, is a failure. ``{{ADVISORY}}`` and
``{{NOTHING_TO_SUMMARISE}}`` (``memory.summary.NOTHING_TO_SUMMARISE``) in expected texts are
replaced by our words before the comparison; ``{{ERROR}}`` is put into the result by the adapter.
Conversions that every area needs (``entries_of``, ``observations_in``, ``ids``…) are in ``cases``.
An adapter that needs a loop runs ``asyncio.run`` itself.

Cases that a row of that table changes are listed in ``superseded.toml``. They still run, count
neither as passed nor as failed while they differ, and fail the run when they pass.
"""

import sys
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from tests.conformance.cases import Case, failure_of, load

VECTORS: Final = Path(__file__).parent / "vectors"
SUPERSEDED: Final = Path(__file__).with_name("superseded.toml")


class Superseded(msgspec.Struct, frozen=True):
    """A case whose expectation a row of design.md section 12 replaces."""

    area: str
    name: str
    row: int
    test: str
    """``<file>::<function>``, the test of our rule."""


class Verdict(msgspec.Struct, frozen=True):
    """What came of a case; ``failure`` says why it failed the run."""

    case: Case
    failure: str | None
    superseded: bool = False


def superseded_cases() -> dict[str, Superseded]:
    """Return the superseded cases by title."""
    listed = tomllib.loads(SUPERSEDED.read_text(encoding="utf-8")).get("case", [])
    cases = msgspec.convert(listed, list[Superseded])
    return {f"{case.area}/{case.name}": case for case in cases}


def judge(case: Case, superseded: dict[str, Superseded]) -> Verdict:
    """Run ``case`` and say whether it meets what is expected of us."""
    difference = failure_of(case)
    listed = superseded.get(case.title)
    if listed is None:
        return Verdict(case, difference)
    if difference is None:
        return Verdict(case, f"passes, but is superseded by row {listed.row}", superseded=True)
    return Verdict(case, None, superseded=True)


def main(arguments: list[str]) -> int:
    """Run the folder named by the only argument; return the exit status."""
    if len(arguments) != 1 or not (folder := Path(arguments[0])).is_dir():
        print("usage: python -m tests.conformance.runner FOLDER", file=sys.stderr)
        return 2
    superseded = superseded_cases()
    passed = failed = replaced = 0
    for path in sorted(folder.rglob("*.json")):
        for case in load(path):
            verdict = judge(case, superseded)
            if verdict.failure is not None:
                failed += 1
                print(f"FAIL {case.title}: {verdict.failure}")
            elif verdict.superseded:
                replaced += 1
                print(f"superseded {case.title}: row {superseded[case.title].row}")
            else:
                passed += 1
    if replaced:
        print(f"{replaced} superseded")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
