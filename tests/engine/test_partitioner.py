import pytest
from ombus_streams.engine.partitioner import murmur2, partition_of

KAFKA_S_OWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""The values of the murmur2 test in Kafka's client, signed as Java has them."""


@pytest.mark.parametrize(("data", "signed"), KAFKA_S_OWN.items())
def test_the_hash_is_the_one_of_kafka_s_client(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_the_sign_bit_is_cleared_not_negated() -> None:
    """Java: ``(hash & 0x7fffffff) % n``; with seven partitions a wrong sign shows."""
    assert partition_of(b"21", 7) == (-973932308 + 2**31) % 7
    assert partition_of(b"abc", 7) == 479470107 % 7


def test_keys_spread_over_every_partition() -> None:
    counts = [0] * 8
    for number in range(8_000):
        counts[partition_of(f"tenant/session-{number}".encode(), 8)] += 1
    assert min(counts) > 800
