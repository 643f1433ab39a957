"""Invented conversations in the LoCoMo format, so that the project tests itself on nobody's data.

Two people talk over many sessions: facts, updates and contradictions of earlier facts, facts nobody
asks about, and chatter around everything. What is said stands in ``phrases.toml``; a seed decides
who says what when. The same seed gives the same conversation on every machine.
"""

import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import resources
from typing import Final

import msgspec

from ombus.eval.locomo import Conversation, Question, Turn

GENERATOR: Final = "invented/1"
"""A changed phrase or rule is a new version: numbers compare within one."""
SEEDS: Final = tuple(range(1, 11))
FACTS: Final = 60
"""Of one conversation; fewer than there are phrases, so that rarity does not give facts away."""
ASKED_SHARE: Final = 0.5
"""Of the facts: about the others nobody asks."""
FACTS_A_SESSION: Final = (4, 7)

_SLOT: Final = re.compile(r"\{(\w+?)(\d*)\}")
_CHATTER: Final = (
    ("reply",),
    ("echo",),
    ("echo",),
    ("opener", "musing"),
    ("echo", "musing"),
    ("musing", "tail"),
)
_PEOPLE: Final = (("Marisol", "Dev"), ("Theo", "Ingrid"), ("Yusuf", "Clara"), ("Ada", "Bram"))


class _Fact(msgspec.Struct, frozen=True):
    say: tuple[str, ...]
    ask: tuple[tuple[str | int, ...], ...]


class _Phrases(msgspec.Struct, frozen=True):
    slots: dict[str, tuple[str, ...]]
    fact: tuple[_Fact, ...]
    chat: dict[str, tuple[str, ...]]


class _Told(msgspec.Struct):
    """A fact with everything chosen, and where its turns stand once they are said."""

    fact: _Fact
    filled: dict[str, str]
    teller: int
    is_asked: bool
    dia_ids: list[str]
    dates: list[str]


def conversation_of(seed: int, n_facts: int = FACTS) -> Conversation:
    """Return the conversation of ``seed``."""
    chance = random.Random(seed)
    phrases = _phrases()
    people = _PEOPLE[seed % len(_PEOPLE)]
    day = datetime(2023, 1, 3, 18, 30) + timedelta(days=chance.randrange(90))
    draw = _drawer(chance, phrases.chat)
    planned = _planned(chance, phrases, people, n_facts)
    waiting = [(told, 0) for told in planned]
    sessions: dict[str, list[Turn]] = {}
    dates: dict[str, str] = {}
    number = 0
    while waiting:
        number += 1
        day += timedelta(days=chance.randrange(3, 17), minutes=chance.randrange(-300, 200))
        date = f"{day.day} {day:%B}, {day.year}"
        size = chance.randint(*FACTS_A_SESSION)
        now, waiting = waiting[:size], waiting[size:]
        for told, step in now:
            if step + 1 < len(told.fact.say):
                # What changes is told later, a session on at least.
                at = min(len(waiting), chance.randrange(size, 4 * size))
                waiting.insert(at, (told, step + 1))
        turns = _session(chance, draw, phrases, people, number, now, date)
        sessions[f"session_{number}"] = turns
        dates[f"session_{number}_date_time"] = f"{day:%I:%M %p} on {date}".lower()
    return Conversation(
        sample_id=f"{GENERATOR}:{seed}",
        speakers=people,
        sessions=sessions,
        dates=dates,
        questions=tuple(_questions(planned, people)),
    )


def _phrases() -> _Phrases:
    text = resources.files("ombus.eval").joinpath("phrases.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _Phrases)


def _drawer(chance: random.Random, lists: Mapping[str, Sequence[str]]) -> Callable[[str], str]:
    """Return what draws from a list by name; nothing comes twice before everything came once."""
    decks: dict[str, list[str]] = {}

    def draw(name: str) -> str:
        deck = decks.setdefault(name, [])
        if not deck:
            deck += chance.sample(lists[name], len(lists[name]))
        return deck.pop()

    return draw


def _planned(
    chance: random.Random, phrases: _Phrases, people: Sequence[str], n_facts: int
) -> list[_Told]:
    facts: list[_Fact] = []
    while len(facts) < n_facts:
        facts += chance.sample(phrases.fact, len(phrases.fact))
    draw = _drawer(chance, phrases.slots)
    planned = []
    for fact in facts[:n_facts]:
        teller = chance.randrange(2)
        filled = {"me": people[teller], "you": people[1 - teller]}
        texts = [*fact.say, *(str(part) for ask in fact.ask for part in ask[:2])]
        for name, again in dict.fromkeys(slot for text in texts for slot in _SLOT.findall(text)):
            if name == "day":
                filled[name] = str(chance.randrange(4, 20))
            elif name != "date" and name not in ("me", "you"):
                filled[f"{name}{again}"] = draw(name)
        is_asked = chance.random() < ASKED_SHARE
        planned.append(_Told(fact, filled, teller, is_asked, [], []))
    return planned


def _session(
    chance: random.Random,
    draw: Callable[[str], str],
    phrases: _Phrases,
    people: Sequence[str],
    number: int,
    told: Sequence[tuple[_Told, int]],
    date: str,
) -> list[Turn]:
    turns: list[Turn] = []

    def speak(who: int, text: str) -> str:
        names = {"me": people[who], "you": people[1 - who]}
        dia_id = f"D{number}:{len(turns) + 1}"
        before = [word.strip("!,.?'") for word in turns[-1].text.split()] if turns else []
        telling = sorted({word for word in before if len(word) > 5} - set(people)) or ["that"]
        for slot, again in _SLOT.findall(text):
            if slot == "echo":
                names[f"echo{again}"] = chance.choice(telling)
            elif slot == "day":
                names[slot] = str(chance.randrange(2, 90))
            elif slot not in names:
                names[f"{slot}{again}"] = chance.choice(phrases.slots[slot])
        turns.append(Turn(speaker=people[who], dia_id=dia_id, text=_fill(text, names).strip()))
        return dia_id

    def chat(who: int, *kinds: str) -> None:
        speak(who, " ".join(map(draw, kinds)))

    last = chance.randrange(2)
    chat(last, "hello")
    for one, step in told:
        if one.teller == last:
            chat(1 - last, "echo" if chance.random() < 0.6 else "musing")
        opener = draw("opener") if chance.random() < 0.6 else ""
        tail = draw("tail") if chance.random() < 0.65 else ""
        said = _fill(one.fact.say[step], one.filled)
        one.dia_ids.append(speak(one.teller, f"{opener} {said} {tail}"))
        one.dates.append(date)
        last = 1 - one.teller
        for _ in range(chance.randint(0, 2)):
            kinds = chance.choice(_CHATTER)
            chat(last, *kinds)
            last = 1 - last
        last = 1 - last
    chat(1 - last, "bye")
    chat(last, "bye")
    return turns


def _questions(planned: Sequence[_Told], people: Sequence[str]) -> Iterator[Question]:
    for told in planned:
        if not told.is_asked:
            continue
        filled = told.filled | {f"date{n}": date for n, date in enumerate(told.dates)}
        for question, answer, category, *shown in told.fact.ask:
            yield Question(
                question=_fill(str(question), filled),
                answer=_fill(str(answer), filled),
                evidence=tuple(told.dia_ids[int(at)] for at in shown),
                category=int(category),
            )


def _fill(text: str, filled: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda slot: filled[slot[0][1:-1]], text)
