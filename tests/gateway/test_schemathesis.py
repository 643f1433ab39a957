"""The published document against a gateway: what it promises holds for whatever is sent."""

import os
import re
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("schemathesis", reason="it is part of the extra dev")

from msgspec import Meta
from ombus_schemas.delegating import LimitName
from ombus_streams.supervision.limits import HARD

from tests.gateway.api_fuzz import fuzz

EXAMPLES = int(os.environ.get("OMBUS_TEST_API_EXAMPLES", "1"))
"""Of each route, random ones; `make api-fuzz` asks for more, and for every edge of each schema."""


def test_no_5xx_and_no_violation_of_the_document(tmp_path: Path) -> None:
    done = fuzz(tmp_path, EXAMPLES, seed=1, phases=("fuzzing",))
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None
    assert int(tested.group(1)) > 20


def test_the_limits_a_delegation_may_lower_are_those_there_are() -> None:
    (_, meta) = get_args(LimitName)
    assert isinstance(meta, Meta)
    assert meta.pattern == f"^({'|'.join(HARD)})$"
