"""S23.1: the default compaction, and design.md section 12, rows 1 and 10."""

from ombus_streams.memory.summary import NOTHING_TO_SUMMARISE, should_auto_compact, summarise

from tests.support.ledgers import entry, message


def test_a_summary_is_cut_between_characters() -> None:
    entries = [message("e1", "\U0001f600" * 4)]

    assert summarise(entries, 0, max_units=8).summary == "user: …"
    assert summarise(entries, 0, max_units=9).summary == "user: \U0001f600…"


def test_a_secret_is_gone_before_the_cut() -> None:
    entries = [message("e1", "the password is hunter2")]

    assert "hun" not in summarise(entries, 0, secrets=["hunter2"], max_units=26).summary


def test_nothing_before_the_kept_messages_is_said_so() -> None:
    compacted = summarise([message("e1", "hi")], 5)

    assert compacted.summary == NOTHING_TO_SUMMARISE
    assert compacted.data == {"keepEntryIds": ["e1"], "strategy": "default-compaction"}


def test_a_run_compacts_itself_once_above_the_threshold_and_never_twice_in_a_row() -> None:
    entries = [message("e1", "a"), message("e2", "b")]

    assert should_auto_compact(entries, 1, has_compacted=False)
    assert not should_auto_compact(entries, 2, has_compacted=False)
    assert not should_auto_compact(entries, 1, has_compacted=True)
    assert not should_auto_compact([*entries, entry("k", "compaction")], 1, has_compacted=False)
