"""Schemathesis against a gateway of its own: ``python -m tests.gateway.api_fuzz --examples 100``.

Everything the published document promises is held against what is answered: statuses, bodies,
content types, what is refused, what is taken (``api_checks``), tokens. Streams have no end, so
their routes are left to ``test_tail`` and ``test_hostile``. Ends with Schemathesis's own exit code.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog
from ombus.gateway.limits import Limits
from ombus_schemas.publish import FOLDER, OPENAPI_FILE
from ombus_schemas.routes import ROUTES

from tests.gateway.serving import running

ROOT: Final = Path(__file__).parents[2]
HOOKS: Final = "tests.gateway.api_checks"
PHASES: Final = ("coverage", "fuzzing")
MAX_SECONDS: Final = 30
ANY: Final = 1_000_000
LIMITS: Final = Limits(
    requests_per_second=ANY,
    burst=ANY,
    tenant_requests_per_second=ANY,
    tenant_burst=ANY,
    max_wait_seconds=0.5,
)
"""No rate, and nobody waits long for what will not come."""
SESSIONS: Final = ("s", "0", "a.b")
"""There from the start, so that what is asked of a session is sometimes asked of one."""


def fuzz(
    folder: Path, n_examples: int, seed: int, phases: Sequence[str] = PHASES, *more: str
) -> subprocess.CompletedProcess[str]:
    """Return how Schemathesis ended, with what it said."""
    with running(folder, LIMITS) as served:
        token = served.token("operator")
        headers = {"Authorization": f"Bearer {token}"}
        for session in SESSIONS:
            served.append(session, "The ferry leaves at 9:15.", headers=headers)
        excluded = [f"--exclude-operation-id={route.name}" for route in ROUTES if route.streams]
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run",
            str(FOLDER / OPENAPI_FILE), "--url", served.url, "-H", f"Authorization: Bearer {token}",
            "--phases", ",".join(phases), "--max-examples", str(n_examples), "--seed", str(seed),
            "--checks", "all", "--exclude-checks", "positive_data_acceptance",
            "--max-response-time", str(MAX_SECONDS),
            "--continue-on-failure", "--no-color", "--warnings", "off",
            "--request-timeout", str(MAX_SECONDS), "--suppress-health-check", "all",
            *excluded, *more,
        ]  # fmt: skip
        environ = {**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environ)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gateway.api_fuzz")
    parser.add_argument("--examples", type=int, default=100, help="of each route")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as folder:
        done = fuzz(Path(folder), arguments.examples, arguments.seed)
    print(done.stdout, done.stderr, sep="", end="")
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
