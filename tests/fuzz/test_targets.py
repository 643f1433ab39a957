"""The fuzzing targets take their own seeds, and bytes that coverage-guided runs have found."""

import pytest

from tests.fuzz.targets import TARGETS, corpus

SKIPPED = b'{"id":"e","sessionId":"s","kind":"k","none":%s,"event":[' + b"[]," * 70 + b"0]}"
FOUND: tuple[bytes, ...] = (
    SKIPPED % b'"\xff"',
    SKIPPED % b'"\\ud800"',
    SKIPPED % b"1e999",
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\x03{",
    b"[" * 2_000,
    b"\x01[" * 500,
)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_any_bytes(name: str) -> None:
    target = TARGETS[name]
    for raw in corpus(target):
        target(raw)
    for raw in FOUND:
        for first in range(14):
            target(bytes([first]) + raw)
            target(raw)
