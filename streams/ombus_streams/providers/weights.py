"""How much each word of a conversation is worth keeping, judged from what was said so far.

A word is worth more the rarer it is among the turns, as a number or a name; less in a question, in
praise of the other, in a greeting. Only the turns given are looked at: no later one, no model.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from ombus_streams.providers.lines import STOP_WORDS
from ombus_streams.providers.tuning import DEFAULT, Tuning

_CHUNK: Final = re.compile(r"\S+")
_WORD: Final = re.compile(r"[^\W_]+")
_SENTENCE: Final = re.compile(r"[^.!?…\n]+(?:[.!?…]+[\"')\]]*|\n|\Z)\s*")
_CLAUSE_END: Final = re.compile(r"[,;:.!?…)\]–—-]$")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_JOINTS: Final = _set(
    "and but so because since while when where which who that then though although if or"
)
_FIRST: Final = _set("i i'm i've i'd i'll me my mine we we're we've we'd we'll us our")
_SECOND: Final = _set("you you're you've you'd you'll your yours that's it's")
_WEAK: Final = _set(
    """\
wow hey hi hello thanks thank haha hah lol yeah yep yes nope sure oh aw aww ah hmm ok okay right
totally absolutely definitely really truly certainly honestly exactly indeed glad happy sorry hear
awesome amazing great cool nice lovely wonderful fantastic incredible brilliant beautiful good best
better love loved hope luck wish congrats congratulations proud appreciate sounds sound talk chat
catch soon later bye care cheers welcome agree guess know think feel feels felt say said saying
tell told mean means seem seems look looks looking forward let's can't don't it's that's there's
here's what's how's i'm i've i'd i'll you're you've you'll we're we've they're didn't doesn't isn't
wasn't won't couldn't wouldn't gonna wanna gotta kinda sorta lot lots bit stuff something anything
everything nothing someone anyone everyone always never ever maybe perhaps anyway pretty super
quite so-so much many few little big way keep keeps keeping going come comes coming came back well
lately recently up definitely inspiring inspire support important special"""
)
"""Words of small talk: said by everybody about everything."""
_EVERYDAY: Final = _set(
    """\
time times people person life day days thing things work working world start started try trying
tried new old first last next every another take takes took taking give gave given find found help
helps helped helping put see saw seen seeing show watch getting got made making nice end part whole
place moment moments stay kind kinds sort different hard easy fun enjoy enjoyed enjoying excited
exciting interesting idea ideas news today ago still even though around away"""
)
_TIMES: Final = _set(
    """\
yesterday tonight tomorrow week weeks weekend weekends month months year years monday tuesday
wednesday thursday friday saturday sunday january february march april may june july august
september october november december spring summer autumn fall winter morning evening birthday
anniversary ago"""
)

MIN_REPEATED_WORDS: Final = 4
"""A shorter sentence says something new where it answers something else."""


class Chunk(msgspec.Struct, frozen=True):
    """A run of characters between blanks, with its punctuation."""

    start: int
    end: int
    weight: float
    is_start: bool
    """A clause begins here."""
    is_end: bool
    """A clause ends here."""
    sentence: int


class Rarity:
    """In how many turns each word occurs."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._n_texts = len(texts)
        self._n_by_word: Counter[str] = Counter()
        for text in texts:
            self._n_by_word.update({word.casefold() for word in _WORD.findall(text)})

    def of(self, word: str) -> float:
        """Return 1 for a word of one turn, towards 0 for a word of every turn."""
        n_texts = max(self._n_texts, 20) + 1
        shared = max(1, min(n_texts, self._n_by_word[word]))
        return math.log(n_texts / shared) / math.log(n_texts)


def chunks(
    text: str, rarity: Rarity, said: set[str] | None = None, tuning: Tuning = DEFAULT
) -> list[Chunk]:
    """Return the weighed words of a turn; a sentence in ``said`` weighs nothing, and joins it."""
    found: list[Chunk] = []
    for number, sentence in enumerate(_SENTENCE.finditer(text)):
        pieces = list(_CHUNK.finditer(text, *sentence.span()))
        factor = _factor(sentence[0], [piece[0].casefold() for piece in pieces], tuning)
        if said is not None and len(pieces) >= MIN_REPEATED_WORDS:
            key = plain(sentence[0])
            factor *= tuning.repeated if key in said else 1.0
            said.add(key)
        is_start = True
        for place, piece in enumerate(pieces):
            raw = piece[0]
            is_joint = raw.casefold().strip("\"'(") in _JOINTS
            ends = bool(_CLAUSE_END.search(raw)) or place + 1 == len(pieces)
            if not ends:
                following = pieces[place + 1][0].casefold()
                ends = following in _JOINTS
            found.append(
                Chunk(
                    start=piece.start(),
                    end=piece.end(),
                    weight=factor * _weight(raw, place, rarity, tuning),
                    is_start=is_start or is_joint,
                    is_end=ends,
                    sentence=number,
                )
            )
            is_start = ends
    return found


def plain(sentence: str) -> str:
    """Return the words of a sentence without case and punctuation."""
    return " ".join(_WORD.findall(sentence.casefold()))


def _factor(sentence: str, lowered: Sequence[str], tuning: Tuning) -> float:
    said = {word.strip(",.!?;:\"'()").replace("’", "'") for word in lowered}
    factor = 1.0
    if sentence.rstrip().rstrip("\"')]").endswith("?"):
        factor = tuning.question
    if said & _FIRST:
        return factor
    return factor * (tuning.about_the_other if said & _SECOND else tuning.impersonal)


def _weight(raw: str, place: int, rarity: Rarity, tuning: Tuning) -> float:
    plain = raw.strip(",.!?;:\"'()").casefold().replace("’", "'")
    if plain in _WEAK:
        return tuning.small_talk
    total = 0.0
    for match in _WORD.finditer(raw):
        word = match[0].casefold()
        if word in STOP_WORDS or (len(word) == 1 and not word.isdigit()):
            continue
        weight = rarity.of(word) ** tuning.rarity
        if word in _WEAK:
            weight *= 2.5 * tuning.small_talk
        elif word in _TIMES:
            weight = max(weight, tuning.time_floor)
        elif word in _EVERYDAY:
            weight *= tuning.everyday
        elif word.isdigit():
            weight *= tuning.number
        elif match[0][0].isupper() and place:
            weight *= tuning.name
        total += weight
    return total
