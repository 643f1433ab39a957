"""What each rule of ``extractive`` earns: the same measures with one rule switched off."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from ombus_streams.providers.tuning import DEFAULT, Tuning

from ombus.eval import evidence, reuse
from ombus.eval.locomo import Conversation
from ombus.eval.remembering import UNCHANGED, Plan


def _without(**numbers: float | bool) -> Plan:
    tuning: Tuning = msgspec.structs.replace(DEFAULT, **numbers)
    return msgspec.structs.replace(UNCHANGED, tuning=tuning)


TALK: Final[Mapping[str, Plan]] = {
    "nothing": UNCHANGED,
    "rare words before common ones": _without(rarity=0.0),
    "small talk weighs little": _without(small_talk=0.4, everyday=1.0),
    "questions and praise weigh less": _without(question=1.0, about_the_other=1.0, impersonal=1.0),
    "numbers, names and times weigh more": _without(number=1.0, name=1.0, time_floor=0.0),
    "nothing is said twice": _without(repeated=1.0),
    "spans end where clauses end": _without(ragged=0.0),
    "few spans of a turn": _without(gap=0.0),
    "a turn must be worth a line": _without(turn=0.0),
    "neighbours share a line": _without(max_sources=1),
    "observed to the budget (half more, then trimmed)": msgspec.structs.replace(
        UNCHANGED, over=1.5
    ),
    "no reflections while the pool fits": msgspec.structs.replace(
        UNCHANGED, over=1.6, reflects=True, drop_to=0.45
    ),
    "the same, dropping by lowest relevance": msgspec.structs.replace(
        UNCHANGED, over=1.6, reflects=True, drop_to=0.45, policy="lowest-relevance"
    ),
}
WORK: Final[Mapping[str, Plan]] = {
    "nothing": UNCHANGED,
    "an index of names": _without(names_most=0.0, names_least=0.0),
    "room kept for the index": _without(names_least=0.0),
    "the user's words and last states first": _without(relevance_first=False),
    "corrections replace what they correct": _without(corrected=2.0),
    "near-duplicates are left out": _without(alike=2.0),
}


class Earned(msgspec.Struct, frozen=True, kw_only=True):
    """The measure without one rule."""

    without: str
    held: float
    ratio: float
    readable: float | None = None


def of_talk(conversations: Sequence[Conversation], budget: float) -> list[Earned]:
    """Return ``eval evidence`` without each rule in turn; the first is the whole provider."""
    found = []
    for name, plan in TALK.items():
        one = evidence.measured(conversations, budget, plan)
        found.append(Earned(without=name, held=one.held, ratio=one.ratio, readable=one.readable))
    return found


def of_work(transcripts: Sequence[Path], budget: float) -> list[Earned]:
    """Return ``eval reuse`` without each rule in turn, over the identifiers of all transcripts."""
    found = []
    for name, plan in WORK.items():
        each = [reuse.measured(path, budget, variant=plan) for path in transcripts]
        n = max(1, sum(one.identifiers for one in each))
        held = sum(one.memory * one.identifiers for one in each) / n
        ratio = sum(one.ratio * one.tokens for one in each) / max(
            1, sum(one.tokens for one in each)
        )
        found.append(Earned(without=name, held=round(held, 4), ratio=round(ratio, 4)))
    return found
