"""The undo log of custom state: entries are undone, the last one first."""

from __future__ import annotations

from helix_agents.backends.redis.sessions.history import CustomImage, entry_of, shelves_of
from helix_agents.stores.state.cells import rebuild


def test_entries_are_undone_in_reverse_order() -> None:
    image = CustomImage({"n": "2", "new": "1", "l": ["1", "9", "3"], "o": {"a": "2", "b": "1"}, "gone": "0"})
    log = ["k n 1", "K new", "i l 1 2", "c l 2", "m o a 1", "M o b", "l gone shelf"]
    entries = [entry_of(text.replace(" ", "\x1f")) for text in log]
    assert shelves_of(entries) == {"shelf": "l"}
    image.take_back(entries, {"shelf": ["7"]})
    assert rebuild(image.cells()) == {"n": 1, "l": [1, 2], "o": {"a": 1}, "gone": [7]}


def test_the_oldest_entry_of_a_key_counts() -> None:
    image = CustomImage({"n": "3"})
    image.take_back([["k", "n", "1"], ["k", "n", "2"]], {})
    assert image.contents()["n"].text == "1"
