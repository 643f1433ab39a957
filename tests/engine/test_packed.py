"""Headers that nobody unpacks are still headers."""

from collections.abc import Sequence

from ombus_streams.engine.embedded.packed import Header, pack, unpacked_later

HEADERS: Sequence[Header] = (("ce_id", b"e1"), ("ombus-origin", b"\xff"))


def test_packed_headers_read_like_the_tuple_they_were() -> None:
    headers = unpacked_later(pack(HEADERS))

    assert headers == HEADERS
    assert [headers] == [HEADERS]
    assert headers == unpacked_later(pack(headers))
    assert headers != HEADERS[:1]
    assert dict(headers) == dict(HEADERS)
    assert (len(headers), headers[1], headers[:1]) == (2, HEADERS[1], HEADERS[:1])
    assert (hash(headers), repr(headers)) == (hash(HEADERS), repr(HEADERS))


def test_no_headers_take_no_bytes() -> None:
    assert pack(()) is None
    assert unpacked_later(None) == ()
