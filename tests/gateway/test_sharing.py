"""Gateways that share a log on Kafka: whoever is asked, the owner's rows answer."""

import os
from collections.abc import Iterator
from typing import Final

import pytest

pytest.importorskip("faust", reason="the Kafka engine needs the extra kafka")

from tests.gateway.sharing import Place, Shared, make_place, sharing
from tests.support.brokers import Service

N_PAIRS: Final = int(os.environ.get("OMBUS_TEST_GATEWAY_PAIRS", "300"))


@pytest.fixture(scope="module")
def place(kafka: Service, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(kafka.address, tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def both(place: Place) -> Iterator[list[Shared]]:
    with sharing(place) as found:
        yield found


def test_what_one_appends_the_other_reads(both: list[Shared]) -> None:
    a, b = both
    answered_by: set[str] = set()
    for number in range(N_PAIRS):
        session, text = f"pair-{number % 40}", f"word-{number}"
        done = a.post(f"{session}/entries", {"entries": [{"role": "user", "content": text}]})
        assert done.status_code == 200, done.text
        assert done.headers["ombus-instance"] == "a"
        read = b.get(f"{session}/context", atLeast=done.json()["position"])
        assert read.status_code == 200, read.text
        assert read.headers["ombus-instance"] == "b"
        assert text in read.text
        answered_by.add(read.headers["ombus-answered-by"])
    assert answered_by == {"a", "b"}
    print(f"{N_PAIRS:,} pairs, none missed its own write")
