"""Programs: one atomic write as data, with the words that `commit.lua` and `multi.py` understand.

A program has guards (conditions with a reason) and effects, in order. Keys are numbered, so that each is sent once, and
all that can be known beforehand are declared, as a cluster wants. Nothing here talks to a server.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .keys import SessionKeys

ABSENT: Final = False
"""What a missing value compares equal to."""

Effect = list[Any]

_encoder = msgspec.msgpack.Encoder()


class Program:
    """One atomic write. `keys[0]` decides where it runs."""

    def __init__(self, first_key: str) -> None:
        self.keys: list[str] = [first_key]
        self.guards: list[list[Any]] = []
        self.effects: list[Effect] = []
        self.wanted: list[list[Any]] = []
        self.session: dict[str, Any] | None = None
        self._places: dict[str, int] = {first_key: 1}
        self._cells: set[str] = set()

    def key(self, name: str) -> int:
        """The place of a key, counted from 1."""
        place = self._places.get(name)
        if place is None:
            self.keys.append(name)
            place = self._places[name] = len(self.keys)
        return place

    # -- guards

    def require(self, reason: str, expected: object, command: str, key: str, *words: object) -> None:
        """The reply to a command must be exactly this."""
        self.guards.append(["=", reason, expected, command, self.key(key), *words])

    def require_field(self, reason: str, expected: object, field: str) -> None:
        """A field of the session's main hash must be exactly this."""
        self.guards.append(["field", reason, expected, field])

    def require_field_in(self, reason: str, expected: list[str], field: str) -> None:
        """A field of the main hash must be one of these."""
        self.guards.append(["field in", reason, expected, field])

    def require_field_with(self, reason: str, word: str, field: str) -> None:
        """A field of the main hash must contain this."""
        self.guards.append(["field has", reason, word, field])

    def require_session(self, reason: str, *, exists: bool) -> None:
        """There must, or must not, be a session."""
        self.guards.append(["exists", reason, exists])

    def require_cell(self, reason: str, expected: object, field: str) -> None:
        """What custom state holds under a top-level key must be exactly this."""
        self.know_cell(field)
        self.guards.append(["cell", reason, expected, field])

    def require_staged(self, reason: str, fields: list[str], beginning: str) -> None:
        """The staged rows that begin so must be exactly these."""
        self.guards.append(["staged", reason, fields, beginning])

    # -- effects

    def do(self, command: str, key: str, *words: object) -> None:
        """A plain command."""
        self.effects.append(["!", command, self.key(key), *words])

    def create(self, command: str, key: str, *words: object) -> None:
        """An RPUSH, HSET or SADD that may create the key, which then gets the session's deadline."""
        self.effects.append(["+", command, self.key(key), *words])

    def extend(self, key: str, least_ms: int) -> None:
        """Let a key live at least so long from now."""
        self.effects.append(["extend", self.key(key), least_ms])

    def effect(self, word: str, *rest: object) -> None:
        """One of the effects with a name."""
        self.effects.append([word, *rest])

    def want(self, command: str, key: str, *words: object) -> None:
        """Answer the reply to this command, after all effects."""
        self.wanted.append([command, self.key(key), *words])

    # -- sessions

    @classmethod
    def of_session(cls, keys: SessionKeys, ttl_ms: int) -> Program:
        """A program that writes a session: its keys share a deadline, its counters are answered."""
        program = cls(keys.main)
        program.keys = list(keys.all_static)
        program._places = keys.places.copy()
        program.session = {"head": keys.head, "tail": keys.tail, "ttl": ttl_ms, "set": [], "gone": [], "add": []}
        return program

    def know_cell(self, field: str) -> None:
        """The program speaks of this top-level key of custom state."""
        assert self.session is not None
        if field not in self._cells:
            self._cells.add(field)
            self.session.setdefault("cells", []).append(field)

    def set_field(self, field: str, value: object) -> None:
        """Set a field of the main hash."""
        assert self.session is not None
        # As text: what Lua makes of a number larger than 2**53 is not that number.
        self.session["set"] += (field, value if isinstance(value, str) else str(value))

    def drop_field(self, field: str) -> None:
        """Remove a field of the main hash; only those that `commit.lua` reads."""
        assert self.session is not None
        self.session["gone"].append(field)

    def add_to_field(self, field: str, amount: int) -> None:
        """Count a field of the main hash up."""
        assert self.session is not None
        self.session["add"] += (field, amount)

    def mark_status(self, word: str) -> None:
        """Note that the index knows of a status."""
        assert self.session is not None
        self.session["mark"] = word

    def watched(self) -> list[str]:
        """The keys that must not change between looking and writing, where the two are apart."""
        if self.session is not None:
            return self.keys[:1]  # every write of a session touches its main hash
        return [self.keys[place - 1] for place in sorted({guard[4] for guard in self.guards if guard[0] == "="})]

    def packed(self) -> bytes:
        """The program as one argument of the script."""
        return _encoder.encode([self.session or False, self.guards, self.effects, self.wanted])
