"""Split text into words and score how well words match a query, the same way on every backend.

Backends index these words and find memories that have all of a query's words; ranking is also done here. This module
does not know memories or storage.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import islice

MAX_WORD_LENGTH = 64
MAX_QUERY_WORDS = 32
MAX_WORDS = 10_000
"""How many words of one text are indexed; later words are stored but not found."""

# In scripts written without spaces (Thai to Khmer, kana, ideographs) each character is a word; otherwise only the start
# of a sentence could be found.
_SPACELESS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
# Those ranges hold punctuation too, hence the look ahead.
_WORD = re.compile(rf"(?=[^\W_])[{_SPACELESS}]|[^\W_{_SPACELESS}]+")

_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
_PREFIX_WEIGHT = 0.5


def words_of(text: str) -> list[str]:
    """Return the words of a text in order: letters and digits only, without accents, lower case; at most 10,000."""
    if text.isascii():
        text = text.lower()
    else:
        # Once before folding, since some letters hide capitals, and once after, since folding makes new accents.
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        text = "".join(char for char in folded if not unicodedata.category(char).startswith("M"))
    return [found[0][:MAX_WORD_LENGTH] for found in islice(_WORD.finditer(text), MAX_WORDS)]


def query_words(query: str) -> tuple[str, ...]:
    """Return the distinct words of a query in order, at most 32."""
    return tuple(dict.fromkeys(words_of(query)))[:MAX_QUERY_WORDS]


def has_all(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether every wanted word is one of the words or a prefix of one."""
    return all(any(word.startswith(each) for word in words) for each in wanted)


def score(words: Sequence[str], wanted: Sequence[str], average_length: float) -> float:
    """Score how well words match: more occurrences, whole words and shorter texts are better (the term part of BM25).

    The rarity of a word does not matter: all candidates have all the words.
    """
    length = len(words) / average_length if average_length else 1.0
    damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length)
    total = 0.0
    for each in wanted:
        count = sum(1.0 if word == each else _PREFIX_WEIGHT for word in words if word.startswith(each))
        total += count * (_SATURATION + 1) / (count + damping)
    return total
