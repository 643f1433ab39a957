"""Which partition a key belongs to, the same in every engine.

Kafka's default partitioner: murmur2 with a fixed seed over the key's bytes, the sign bit
cleared, modulo the number of partitions. A log that moves from one engine to another with the
same number of partitions therefore keeps every session where it was.
"""

from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_KEYS: Final = 65_536
"""How many recent keys keep their partition at hand."""


@lru_cache(_KEYS)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of ``key`` among ``partitions``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash Kafka's clients compute."""
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        state = (state * _MULTIPLIER & _MASK) ^ word
    if length > whole:
        state ^= int.from_bytes(data[whole:], "little")
        state = state * _MULTIPLIER & _MASK
    state = (state ^ (state >> 13)) * _MULTIPLIER & _MASK
    return state ^ (state >> 15)
