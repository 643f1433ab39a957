"""The checker itself: it finds what it must find, and excuses what may have happened."""

from tests.scopes.history import NEVER, Act, Change, History, Read, Verdict

OWNER, READER = "o", "r"


def change(act: Act, began: int, ended: int, offset: int | None, principal: str = READER) -> Change:
    return Change(act, OWNER, principal, began, ended, offset)


def read(began: int, ended: int, *seen: str, reason: str | None = None) -> Read:
    return Read(OWNER, READER, began, ended, frozenset(seen), reason)


def judged(*events: Change | Read, bit_by_bit: bool = False) -> Verdict:
    history = History()
    for event in events:
        if isinstance(event, Change):
            history.changed(event)
        else:
            history.read(event)
        if bit_by_bit:
            history.judged()
    return history.judged()


def test_a_marker_after_an_acknowledged_revocation_is_a_violation() -> None:
    found = judged(
        change("grant", 0, 1, 1), read(2, 3, OWNER), change("revoke", 4, 5, 2), read(6, 7, OWNER)
    )
    assert len(found.served) == 1
    assert (found.n_counted, found.n_reads) == (1, 2)


def test_a_read_that_overlaps_the_revocation_may_go_either_way() -> None:
    granted = change("grant", 0, 1, 1)
    revoked = change("revoke", 4, 6, 2)
    for seen in ((OWNER,), ()):
        found = judged(granted, revoked, read(5, 8, *seen, reason=None if seen else "not_granted"))
        assert found.served == found.denied == ()
    assert judged(granted, revoked, read(7, 8, OWNER)).served


def test_the_order_of_the_log_decides_and_not_that_of_the_answers() -> None:
    revoked_first = (change("revoke", 0, 9, 1), change("grant", 0, 1, 2))
    assert judged(*revoked_first, read(10, 11, OWNER)).served == ()
    granted_first = (change("grant", 0, 9, 1), change("revoke", 0, 1, 2))
    assert judged(*granted_first, read(10, 11, OWNER)).served


def test_a_change_of_unknown_outcome_excuses_both_answers() -> None:
    maybe = change("grant", 4, NEVER, None)
    revoked = change("revoke", 0, 1, 5)
    assert judged(revoked, maybe, read(6, 7, OWNER)).served == ()
    assert judged(revoked, maybe, read(6, 7, reason="not_granted")).denied == ()
    assert judged(revoked, maybe, read(2, 3, OWNER)).served
    gone = change("revoke", 4, NEVER, None)
    assert judged(change("grant", 0, 1, 1), gone, read(6, 7, OWNER)).served == ()


def test_who_is_granted_and_told_that_it_is_not_is_a_violation() -> None:
    granted = change("grant", 0, 1, 1)
    assert judged(granted, read(2, 3, reason="not_granted")).denied
    assert judged(granted, read(2, 3, reason="unavailable")).denied == ()
    assert judged(change("grant", 0, 4, 1), read(2, 3, reason="not_granted")).denied == ()


def test_a_peer_that_was_revoked_may_not_be_seen_by_those_who_are_granted() -> None:
    found = judged(
        change("grant", 0, 1, 1),
        change("grant", 0, 1, 2, "peer"),
        change("revoke", 2, 3, 3, "peer"),
        read(4, 5, OWNER, "peer"),
    )
    assert len(found.served) == 1
    assert "peer" in found.served[0]


def test_only_reads_of_those_who_had_read_the_marker_are_counted() -> None:
    found = judged(change("revoke", 0, 1, 1), read(2, 3, reason="not_granted"))
    assert found.n_counted == 0


def test_a_read_is_judged_once_the_change_before_its_end_is_known() -> None:
    history = History()
    history.changed(change("grant", 0, 1, 1))
    began = history.begin(OWNER)
    history.read(read(began + 1, began + 2, OWNER))
    assert history.judged().n_reads == 0
    history.end(OWNER, [change("revoke", began, began, 2)])
    assert (history.judged().n_reads, len(history.judged().served)) == (1, 1)


def test_what_is_judged_bit_by_bit_comes_to_the_same() -> None:
    events = (
        change("grant", 0, 1, 1), read(2, 3, OWNER), change("revoke", 4, 5, 2),
        read(6, 7, reason="not_granted"), change("grant", 8, 9, 3), read(10, 11, OWNER),
        change("revoke", 12, 13, 4), read(14, 15, OWNER), read(16, 17, reason="unavailable"),
    )  # fmt: skip
    found = judged(*events, bit_by_bit=True)
    assert found == judged(*events)
    assert (found.n_counted, len(found.served)) == (3, 1)
