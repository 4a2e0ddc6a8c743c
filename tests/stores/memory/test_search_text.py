"""How text is split into words, which every backend's search uses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_agents.stores.memory.search_text import (
    MAX_QUERY_WORDS,
    MAX_WORD_LENGTH,
    MAX_WORDS,
    has_all,
    query_words,
    words_of,
)

TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@given(TEXT)
def test_words_are_letters_and_digits_in_utf8(text: str) -> None:
    for word in words_of(text):
        assert word.isalnum()
        word.encode()


@given(TEXT)
def test_words_stay_the_same_when_taken_again(text: str) -> None:
    words = words_of(text)
    assert words_of(" ".join(words)) == words


@given(TEXT, st.data())
def test_a_text_is_found_by_each_of_its_words_and_their_beginnings(text: str, data: st.DataObject) -> None:
    words = words_of(text)
    if words:
        word = data.draw(st.sampled_from(words))
        assert has_all(words, [word[: data.draw(st.integers(1, len(word)))]])


def test_no_character_makes_a_word_that_is_not_letters_and_digits() -> None:
    everything = " ".join(map(chr, range(0x110000)))
    chunks = (everything[start : start + MAX_WORDS] for start in range(0, len(everything), MAX_WORDS))
    assert [word for chunk in chunks for word in words_of(chunk) if not word.isalnum()] == []


def test_punctuation_of_scripts_without_spaces_is_no_word() -> None:
    assert words_of("東・京 ฿5") == ["東", "京", "5"]


def test_capitals_and_accents_fold() -> None:
    assert words_of("ÅRHUS İstanbul ﬁne ℌ Straße") == ["arhus", "istanbul", "fine", "h", "strasse"]


def test_scripts_without_spaces_split_into_characters() -> None:
    assert words_of("iPhone東京ไทย") == ["iphone", "東", "京", "ไ", "ท", "ย"]


def test_everything_is_bounded() -> None:
    assert len(words_of("a " * (MAX_WORDS + 1))) == MAX_WORDS
    assert words_of("a" * 1000) == ["a" * MAX_WORD_LENGTH]
    assert len(query_words(" ".join(map(str, range(1000))))) == MAX_QUERY_WORDS
