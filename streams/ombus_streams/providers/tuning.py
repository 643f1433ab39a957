"""The numbers ``extractive`` weighs with, in one value, so that each rule's worth can be measured.

The defaults are the provider. ``eval ablate`` sets one rule to nothing and prints what is lost.
"""

from typing import Final

import msgspec

from ombus_streams.providers.lines import ALIKE


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """Factors and prices; a factor of 1 and a price of 0 switch a rule off."""

    rarity: float = 1.0
    """Exponent of a word's rarity among the turns so far."""
    question: float = 0.5
    """Of the words of a question: it asks for a fact, it seldom is one."""
    about_the_other: float = 0.5
    """Of a sentence about the listener: praise and sympathy."""
    impersonal: float = 0.9
    """Of a sentence about neither."""
    small_talk: float = 0.15
    """Of words that everybody says about everything."""
    everyday: float = 0.6
    """Of words that are said every day."""
    number: float = 1.4
    name: float = 1.2
    time_floor: float = 0.6
    """What a word for a time weighs at least, however often it is said."""
    repeated: float = 0.0
    """Of a sentence that was said before."""
    gap: float = 0.35
    """What a further span of a turn must be worth: fragments are hard to read."""
    turn: float = 0.5
    """What a turn must be worth before anything of it is kept."""
    ragged: float = 0.2
    """What a span loses for each end inside a clause."""
    max_sources: int = 3
    """Neighbouring turns on one line."""
    alike: float = ALIKE
    """Shared words over all words, from which two lines say the same."""
    corrected: float = 0.5
    """Part of an earlier wish's words in a correction, from which it replaces the wish."""
    names_least: float = 0.25
    """Of a budget, kept free for the index of names by everything but rules."""
    names_most: float = 0.5
    relevance_first: bool = True
    """Whether the user's rules and last states go before what is merely telling."""


DEFAULT: Final = Tuning()
