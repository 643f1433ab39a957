"""The short form of ``make supervision-load``: markers account for every dropped event."""

from tests.supervision.load import MAX_ROW_BYTES, load


def test_caps_and_rates_hold_and_every_dropped_event_is_in_a_marker() -> None:
    sums = load(parents=4, children=4, seconds=60)

    assert sums.delivered + sums.coalesced + sums.capped == sums.offered == 16 * 602
    assert sums.coalesced > 0
    assert 0 < sums.n_capped_children <= 16
    assert sums.max_row_bytes <= MAX_ROW_BYTES
