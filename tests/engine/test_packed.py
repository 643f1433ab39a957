"""Headers that nobody unpacks are still headers."""

from collections.abc import Sequence

from ombus_streams.engine.embedded.packed import Header, PackedHeaders, pack

HEADERS: Sequence[Header] = (("ce_id", b"e1"), ("ombus-origin", b"\xff"))


def test_packed_headers_read_like_the_tuple_they_were() -> None:
    packed = pack(HEADERS)
    assert packed is not None
    headers = PackedHeaders(packed)

    assert headers == HEADERS
    assert [headers] == [HEADERS]
    assert headers == PackedHeaders(pack(headers) or b"")
    assert headers != HEADERS[:1]
    assert dict(headers) == dict(HEADERS)
    assert (len(headers), headers[1], headers[:1]) == (2, HEADERS[1], HEADERS[:1])
    assert (hash(headers), repr(headers)) == (hash(HEADERS), repr(HEADERS))


def test_no_headers_take_no_bytes() -> None:
    assert pack(()) is None
