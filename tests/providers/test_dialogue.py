"""Talk between two people is kept as verbatim spans, shared by neighbours, within a budget."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.entries import Entry
from ombus_schemas.settings import WorkerLimits
from ombus_streams.memory.tokens import branch_tokens, item_tokens
from ombus_streams.providers.dialogue import dialogue_lines, is_dialogue, shortened
from ombus_streams.providers.extractive import Extractive
from ombus_streams.providers.names import name_lines
from ombus_streams.providers.spans import GAP, MIN_WORDS, Turn, cut, fitted, written
from ombus_streams.providers.tuning import Tuning
from ombus_streams.providers.weights import Rarity, chunks
from ombus_streams.runtime.workers import run_observer, run_reflector

from tests.eval.talks import SAID
from tests.providers.transcripts import ran, said, user, working_day
from tests.support.ledgers import AT, observation


def talked(*texts: str) -> list[Entry]:
    return [(user, said)[n % 2](f"t{n}", text) for n, text in enumerate(texts)]


def turn(text: str, *others: str, tuning: Tuning | None = None) -> Turn:
    return Turn(text, chunks(text, Rarity([text, *others]), None, tuning or Tuning()))


def test_two_people_are_told_from_an_agent_at_work() -> None:
    assert is_dialogue(talked(*SAID))
    assert not is_dialogue(working_day())
    assert not is_dialogue(talked(*SAID[:4]))
    assert not is_dialogue([*talked(*SAID), *ran(1, "pytest", "1 passed in 1s")])
    assert not is_dialogue(talked(*(f"open src/app_{n}.py and run it" for n in range(10))))
    assert not is_dialogue(talked(*["x " * 600] * 10))


def test_facts_are_kept_and_small_talk_is_not() -> None:
    lines = dialogue_lines(talked(*SAID), (), 90, 100)

    text = "\n".join(line.content for line in lines)
    assert "Meridian Textiles" in text
    assert "Pickle" in text
    assert "so happy for you" not in text


def test_a_line_has_three_sources_at_most_and_says_who_spoke() -> None:
    lines = dialogue_lines(talked(*SAID), (), 200, 100)

    assert all(1 <= len(line.source_ids) <= 3 for line in lines)
    assert all(line.content.startswith(("U: ", "A: ")) for line in lines)


def test_what_was_said_before_is_not_kept_again() -> None:
    twice = dialogue_lines(talked(*SAID, *SAID), (), 500, 100)

    text = "\n".join(line.content for line in twice)
    assert text.count("greyhound") == text.count("landlord") == text.count("Ghent") == 1


def test_a_rule_of_the_user_is_kept_whole() -> None:
    rule = "Please never call me before nine in the morning."

    lines = dialogue_lines(talked(rule, *SAID), (), 60, 100)

    assert f"User rule: {rule}" in [line.content for line in lines]


@given(st.lists(st.text(max_size=80), min_size=8, max_size=14), st.floats(10, 300))
def test_any_talk_fits_its_budget_in_verbatim_spans(texts: list[str], budget: float) -> None:
    entries = talked(*texts)
    by_id = {entry.id: " ".join(text.split()) for entry, text in zip(entries, texts, strict=True)}

    lines = dialogue_lines(entries, (), budget, 100)

    assert sum(-(-len(line.content.encode("utf-16-le")) // 8) for line in lines) <= budget
    for line in lines:
        assert set(line.source_ids) <= set(by_id)


def test_the_dearest_price_that_fits_is_paid() -> None:
    turns = [turn(text, *SAID) for text in SAID]

    def weigh(texts: object) -> int:
        assert isinstance(texts, list)
        return sum(len(text) for text in texts)

    for budget in (150, 300):
        assert 0.5 * budget < weigh(fitted(turns, budget, weigh)) <= budget
    assert fitted(turns, 10_000, weigh)[1].startswith("I moved to Ghent")


def test_spans_are_four_words_or_more_and_rather_whole_clauses() -> None:
    one = turn(
        "We painted the kitchen mustard, and it was so nice, and the dog ate a roller.", *SAID
    )

    for price in (0.0, 0.05, 0.08, 0.12):
        spans = cut(one, price)
        assert all(end - start >= MIN_WORDS for start, end in spans)
        for part in written(one, spans).split(GAP):
            assert part in one.text
    assert cut(one, 10.0) == []
    assert cut(turn("Too few words"), 0.0) == []


def test_rare_words_numbers_and_names_weigh_more_than_common_ones() -> None:
    weighed = turn("We saw 12 herons with Marisol there", "we saw it", "we saw them", "we saw you")
    weights = {weighed.text[one.start : one.end]: one.weight for one in weighed.chunks}

    assert weights["12"] > weights["herons"] > weights["saw"]
    assert weights["Marisol"] > weights["herons"]
    assert weights["with"] == 0.0


def test_reflections_of_talk_are_shorter_and_stand_for_one_line() -> None:
    items = [
        observation(n, line.content, tokens=-(-len(line.content) // 4))
        for n, line in enumerate(dialogue_lines(talked(*SAID), (), 200, 100), start=1)
    ]

    themes = shortened(items)

    assert themes
    weights = {item.id: (item.token_count, item.content) for item in items}
    for content, (support,) in themes:
        tokens, whole = weights[support]
        assert -(-len(content) // 4) < tokens
        assert all(part[3:] in whole for part in content.split(" | ") if GAP not in part)
    run = run_reflector(Extractive(), items, "s1", WorkerLimits())
    assert [item.content for item in asyncio.run(run).items] == [content for content, _ in themes]


def test_a_pool_that_fits_is_not_reflected_on() -> None:
    items = [observation(1, "User rule: Never print secrets", tokens=20)] * 2

    run = run_reflector(Extractive(reflect_over_tokens=1_000), items, "s1", WorkerLimits())

    assert asyncio.run(run).items == ()


def test_an_observer_run_over_talk_keeps_to_its_share() -> None:
    sources = talked(*SAID * 3)

    result = asyncio.run(run_observer(Extractive(0.2), sources, (), AT, "s1", WorkerLimits()))

    assert result.n_rejected == 0
    assert 0 < item_tokens(result.items) <= max(48, 0.2 * branch_tokens(sources))


def test_the_index_names_what_is_used_and_latest_and_no_harness() -> None:
    sources = [
        user("u1", "Open src/app/theme.py please"),
        *ran(1, "cat src/app/theme.py", "uses other_helper and loadTheme"),
        *ran(2, "cat src/app/theme.py", "nothing"),
        user("u2", "<environment_context>\n<cwd>/never/named/at_all.py</cwd>"),
    ]

    [line] = name_lines(sources, (), 9, 10)
    assert "src/app/theme.py" in line.content
    assert "other_helper" not in line.content
    [line] = name_lines(sources, ["Read src/app/theme.py"], 100, 10)
    assert "src/app/theme.py" not in line.content
    assert "never" not in line.content
    assert len(line.source_ids) <= 3
    assert name_lines(sources, (), 0, 10) == []


def test_a_correction_replaces_the_wish_it_corrects() -> None:
    sources = [
        user("u1", "Call the key active in the status output."),
        user("u2", "No, the key in the status output must be n_active."),
    ]

    result = asyncio.run(run_observer(Extractive(1.0), sources, (), AT, "s1", WorkerLimits()))

    kinds = [item.content.partition(":")[0] for item in result.items]
    assert "User correction" in kinds
    assert "User asked" not in kinds
