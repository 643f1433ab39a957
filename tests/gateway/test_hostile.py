"""Arbitrary requests on every route: each is answered as the contract says, never with a bug."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from ombus_schemas.api import Problem
from ombus_schemas.problems import STATUS_BY_CODE
from ombus_schemas.route import Route
from ombus_schemas.routes import ROUTES

from tests.gateway.serving import Running

EXAMPLES = 150
ALLOWED = {status for status, _ in STATUS_BY_CODE.values()} - {500}

TEXT = st.text(max_size=20) | st.sampled_from(
    ["", "0", "-1", "1e999", "nan", "m1", "s", "start", "0:0:0", "a" * 300, "\x00", "..", "%2e"]
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["id", "leaf", "waitSeconds", "dryRun", "ids", "reason", "entries", "hold", "kind", "role",
     "content", "message", "parentId", "expectedLeaf", "side", "data", "timestamp"]
)  # fmt: skip
ENTRY = st.dictionaries(NAMES, JSON, max_size=5)
BODY = st.dictionaries(NAMES, JSON, max_size=4) | st.fixed_dictionaries(
    {"entries": st.lists(ENTRY, max_size=3)}
)


@given(
    route=st.sampled_from([route for route in ROUTES if not route.streams]),
    session=st.sampled_from(["hostile", "absent"]) | TEXT,
    part=TEXT,
    values=st.dictionaries(st.sampled_from(["leaf", "asOf", "atLeast", "limit", "after", "recent",
                                            "maxTokens", "cursor", "mode", "direction"]),
                           TEXT, max_size=3),
    body=st.binary(max_size=50) | BODY,
)  # fmt: skip
@settings(max_examples=EXAMPLES)
def test_whatever_is_asked_is_answered(
    served: Running, route: Route, session: str, part: str, values: dict[str, str], body: Any
) -> None:
    served.append("hostile", "one")
    if isinstance(body, dict):
        body = {**body, "waitSeconds": 0} if route.name in ("flush", "compact") else body
        try:
            raw = msgspec.json.encode(body)
        except (ValueError, UnicodeEncodeError):
            raw = b"{}"
    else:
        raw = body
    names = {name: _quoted(part) for name in ("memory", "run", "delegation", "child")}
    path = route.path.format(session=_quoted(session), **names)
    params = {"waitSeconds": "0", **values}
    content = raw if route.method == "POST" else None
    answer = served.http.request(route.method, path, params=params, content=content)
    if answer.status_code == 200:
        msgspec.json.decode(answer.content, type=route.answer)
        return
    assert answer.status_code in ALLOWED, answer.text
    problem = msgspec.json.decode(answer.content, type=Problem)
    assert STATUS_BY_CODE[problem.code] == (answer.status_code, problem.title)


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "replace")) or "%20"
