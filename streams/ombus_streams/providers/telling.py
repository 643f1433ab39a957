"""How telling a passage of a session is, for its length: rare words, names, identifiers."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from ombus_schemas.entries import Entry

from ombus_streams.memory.tokens import text_tokens
from ombus_streams.providers.lines import IDENTIFIER, words


class Telling:
    """How telling the words of a span are among these sources."""

    def __init__(self, sources: Iterable[Entry]) -> None:
        self._n_texts = 0
        self._n_by_word: Counter[str] = Counter()
        for entry in sources:
            for text in texts_of(entry):
                self._n_texts += 1
                self._n_by_word.update(set(words(text[:2_000])))

    def score(self, text: str) -> float:
        """Return the weight of the telling words, names and identifiers, for its length."""
        found = set(words(text))
        if not found:
            return 0.0
        n_texts = self._n_texts + 1
        rare = sum(math.log(n_texts / (1 + self._n_by_word[word])) for word in found)
        named = len(IDENTIFIER.findall(text)) + sum(
            1 for word in text.split()[1:] if word[:1].isupper()
        )
        return (rare + 2 * named) / math.sqrt(8 + text_tokens(text))


def texts_of(entry: Entry) -> Iterator[str]:
    """Yield the texts of a message that hold anything."""
    for block in entry.message.content if entry.message is not None else ():
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str) and text.strip():
            yield text
