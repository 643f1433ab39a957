"""The pattern set: what it takes, what it leaves, that it is linear and published."""

import hashlib
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas import patterns, publish
from ombus_schemas.concealment import conceal, conceal_bytes, conceal_text
from ombus_schemas.jsontext import JsonValue
from ombus_schemas.patterns import PATTERNS, is_secret_member
from ombus_schemas.redaction import MARKER

from tests.support.ledgers import json_values
from tests.support.shapes import Shape, letters, shapes

INNOCENT = (
    "password: string",
    "the password is wrong",
    'token = os.environ["API_TOKEN1"]',
    "secret=getenv('A1B2C3')",
    "api_key=${API_KEY_1}",
    "api_key: <your key 1>",
    "max_tokens: 4096, token_count=128000",
    '{"password": null, "token": 1234567890, "secret": true}',
    "task-management-and-more-stuff, risk-assessment-for-2024",
    "git@github.com:org/repo1.git",
    "npm:react@18.2.0 and pkg:npm/left-pad@1.3.0",
    "see https://example.com/a@b?x=1",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "the bearer of good news; a basic understanding",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "/usr/local/lib/python3.11/site-packages/msgspec/_core.so",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "Authorization: required",
    "cookie: yes",
)
HOSTILE = (
    "-",
    "--",
    "-a",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nA",
    "eyJ",
    "eyJaaaaaaaaaa.",
    "://a:",
    "://",
    ":aaaaaaaa",
    "@:",
    "token=",
    'token="a',
    "token ",
    "secret_a",
    "key\\\"'`",
    "authorization: bearer ",
    "cookie: a",
    "cookie:",
    "bearer ",
    "basic aaaa",
    "-password ",
    "A",
    "AAAAAAAAAAAAAAAAAAAA\n",
    "AAAAAAAAAAAAAAAAAAAA\\n",
    "%3D",
    "1",
    "123456789:AA",
    "SG.",
    "SG.aaaaaaaaaaaaaaaaaaaa.",
    "sk-",
    " sk-a",
    "xoxb-",
    "hooks.slack.com/services/",
    "\u0130password=",
)
HOSTILE_CHARS = 100_000


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert conceal_text(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://u:p@h/db", f"postgres://u:{MARKER}@h/db"),
        ("api_key: sk-sp-ABCD." + "efgh_XYZ!", f"api_key: {MARKER}!"),
        (
            "-H 'Authorization: Bearer " + letters(20, "x") + "'",
            f"-H 'Authorization: Bearer {MARKER}'",
        ),
        ('{"token": "' + letters(20, "x") + '"}', f'{{"token": "{MARKER}"}}'),
        ("ſecret=" + letters(20, "x"), "ſecret=" + letters(20, "x")),
    ],
)
def test_only_the_secret_goes_and_what_names_it_stays(text: str, expected: str) -> None:
    assert conceal_text(text) == expected


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_concealing_twice_changes_nothing_more(shape: Shape) -> None:
    once = conceal_text(shape.text)
    assert conceal_text(once) == once


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (HOSTILE_CHARS // len(unit))
    conceal_text(text[:1_000])
    started = time.process_time()
    conceal_text(text)
    assert time.process_time() - started < 3, "a quadratic pattern takes minutes here"


def test_a_member_is_judged_by_its_name_and_its_look() -> None:
    value = letters(20, "m")
    headers: JsonValue = {"Authorization": f"Token {value}", "Cookie": "a=b", "Host": value}
    concealed: JsonValue = {"Authorization": MARKER, "Cookie": MARKER, "Host": value}
    assert conceal({"headers": headers}) == {"headers": concealed}
    assert conceal([{"name": "cookie", "value": "sid=1"}]) == [{"name": "cookie", "value": MARKER}]
    assert conceal({"dbPassword": value, "password": "string"}) == {
        "dbPassword": MARKER,
        "password": "string",
    }
    assert not is_secret_member("x" * 200 + "password", value)


def test_keys_that_become_equal_stay_apart() -> None:
    first, second = "ghp_" + letters(36, "1"), "ghp_" + letters(36, "2")
    assert conceal({first: 1, second: 2}) == {MARKER: 1, f"{MARKER}__2": 2}


@given(json_values())
def test_a_concealed_value_is_json_of_the_same_shape(value: JsonValue) -> None:
    concealed = conceal(value, ("0", "a"))
    assert type(concealed) is type(value)
    json.dumps(concealed)


@given(json_values(), st.sampled_from([shape.text for shape in shapes()]), st.booleans())
def test_bytes_that_were_json_stay_json(value: JsonValue, text: str, escapes: bool) -> None:
    held: JsonValue = {"v": value, "s": text, "k": {text: [f"\n{text}"]}}
    try:
        raw = json.dumps(held, ensure_ascii=escapes).encode()
    except UnicodeEncodeError:
        raw = json.dumps(held).encode()
    json.loads(conceal_bytes(raw))


@given(st.binary(max_size=200))
def test_bytes_without_a_secret_are_untouched(raw: bytes) -> None:
    assert conceal_bytes(raw, ("not in there at all",)) == raw


def test_every_pattern_is_in_the_syntax_of_re2_and_replaces_one_group() -> None:
    for pattern in PATTERNS:
        assert re.search(r"\(\?[=!<>P(#]|\(\?>|[*+?}]\+|\\[1-9AZzGK]", pattern.regex) is None
        assert re.compile(pattern.regex).groups >= 1
        assert pattern.anchors
    assert len({pattern.name for pattern in PATTERNS}) == len(PATTERNS)


def test_the_set_is_published_with_its_version() -> None:
    published = json.loads((publish.FOLDER / publish.PATTERNS_FILE).read_text())
    assert published["version"] == patterns.VERSION == "patterns/1"
    assert [each["name"] for each in published["patterns"]] == [each.name for each in PATTERNS]


def test_a_change_of_the_set_is_a_change_of_its_version() -> None:
    said = json.dumps(patterns.document(), sort_keys=True)
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    assert (patterns.VERSION, digest) == ("patterns/1", "d0b60e13a466c1b1")
