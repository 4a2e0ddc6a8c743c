"""Programs: one atomic write as a flat list of words, in operations that `lua/` and `without_scripts.py` implement.

A program has guards (conditions with a reason), then writes, in order. Keys are numbered, so that each is sent once,
and all that can be known beforehand are declared, as a cluster wants. What a commit means in these words is up to
`compile.py`. Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from ....streams.records import StreamEnd, StreamStart
from ..client.connection import Argument
from ..keys import SessionKeys, StreamKeys

ABSENT: Final = False
"""The value that a missing one compares equal to."""

ANYTHING: Final = "?"
"""Matches any content of a cell; no JSON text looks like this."""

BATCH = 4000
"""The most words of one command that fit on Lua's stack."""

MAX_ARGUMENTS = 500_000
"""The most arguments of one request: servers accept about a million. Longer programs are packed into one argument."""

_encoder = msgspec.msgpack.Encoder()


class StreamWords(NamedTuple):
    """The arguments that every change of a stream has."""

    fence: Argument
    """The fence, or `""`."""
    now: int
    expired_before: int
    ttl_ms: int
    max_chunks: int
    channel: str


class Program:
    """One atomic write. `keys[0]` decides where it runs."""

    __slots__ = ("_guarded", "_guards", "_places", "_streams", "_writes", "header", "keys", "repeatable")

    def __init__(self, first_key: str) -> None:
        self.keys: list[str] = [first_key]
        self.repeatable = False
        """Whether it may be sent again if its reply was lost, because running it twice is the same as once."""
        self.header: tuple[Argument, str, str] = ("", "", "")
        self._places: dict[str, int] = {first_key: 1}
        self._guards: list[Argument] = []
        self._writes: list[Argument] = []
        self._guarded: set[str] = set()
        self._streams: list[str] = []

    @classmethod
    def of_session(cls, keys: SessionKeys, ttl_ms: int) -> Program:
        """Return a program that writes a session: the script knows the session's keys by position."""
        program = cls(keys.main)
        program.keys = list(keys.of_commit)
        program.header = (ttl_ms, keys.head, keys.tail)
        program._places = keys.places.copy()
        return program

    def key(self, name: str) -> int:
        """Return the index of a key, counted from 1."""
        place = self._places.get(name)
        if place is None:
            self.keys.append(name)
            place = self._places[name] = len(self.keys)
        return place

    # -- guards: whenever they are added, they come before all writes

    def guard(self, name: str, *words: Argument) -> None:
        """Add a condition."""
        self._guards += (name, len(words), *words)

    def require(self, reason: str, expected: str | int | bool, command: str, key: str, *words: Argument) -> None:
        """Require that the reply to a command is exactly this value."""
        self._guarded.add(key)
        mode, text = ("absent", "") if expected is ABSENT else ("is", expected)
        self.guard("reply", reason, mode, text, command, self.key(key), *words)

    def require_field(self, reason: str, mode: str, expected: Argument, field: str) -> None:
        """Require a condition on a field of the main hash.

        Modes: it `is` this, `has` this word, is `among` `|these|`, is `below` this number, is `absent`, is `some` text.
        """
        self._guards += ("field", 4, reason, mode, expected, field)

    # -- writes

    def op(self, name: str, *words: Argument) -> None:
        """Add an operation."""
        self._writes += (name, len(words), *words)

    def do(self, command: str, key: str, *words: Argument) -> None:
        """Add a plain command. One with very many words must be safe to split into several."""
        if len(words) > BATCH:
            for start in range(0, len(words), BATCH):
                self.do(command, key, *words[start : start + BATCH])
            return
        self._writes += ("call", len(words) + 2, command, self.key(key), *words)

    def create(self, command: str, key: str, *words: Argument) -> None:
        """Add an HSET or SADD that may create the key, which then gets the session's deadline."""
        for start in range(0, len(words), BATCH):
            self.op("make", command, self.key(key), *words[start : start + BATCH])

    def push(self, key: str, items: Sequence[Argument], note: str = "") -> None:
        """Append to a list. `note`: an entry of the undo log that ends with the previous length."""
        self._writes += ("push", len(items) + 2, self.key(key), note, *items)

    def extend(self, key: str, least_ms: int) -> None:
        """Extend a key's lifetime to at least this long from now."""
        self.op("extend", self.key(key), least_ms)

    def follow(self, key: str, other: str) -> None:
        """Make a key expire with another one, if that exists; runs after all writes and replies."""
        self.op("follow", self.key(key), self.key(other))

    def answer(self, command: str, key: str, *words: Argument) -> None:
        """Request the reply to this command, run after all writes."""
        self._writes += ("answer", len(words) + 2, command, self.key(key), *words)

    # -- streams that go along

    def append(
        self,
        keys: StreamKeys,
        about: StreamWords,
        producer: tuple[str, int],
        ends: StreamEnd | None,
        chunks: Iterable[tuple[int, str]],
    ) -> None:
        """Append chunks, given as step and text, to a stream in the same slot, unless the stream rejects them.

        `producer`: its id and its counter. `ends`: the stream is no longer active after them.
        """
        self._require_stream("appends", keys, about, *producer)
        words = [word for chunk in chunks for word in chunk]
        self.op("chunks", "" if ends is None else f"{ends.status}={ends.final_output or ends.error or ''}", *words)

    def start(self, keys: StreamKeys, about: StreamWords, start: StreamStart, memory_ms: int) -> None:
        """Start the stream of a turn in the same slot, unless it has changed since it was read.

        `memory_ms`: how long producers are remembered.
        """
        self._require_stream("starts", keys, about, "" if start.latest_sequence is None else start.latest_sequence)
        self.op("start", start.incarnation, memory_ms, start.marker.step, start.marker.text)

    def _require_stream(self, guard: str, keys: StreamKeys, about: StreamWords, *words: Argument) -> None:
        self._streams.append(keys.meta)
        self.guard(guard, *map(self.key, keys), *about, *words)

    # -- reading a program

    @property
    def is_session(self) -> bool:
        """Whether it writes a session."""
        return self.header[0] != ""

    def watched(self) -> Iterable[str]:
        """Yield the keys that must not change between reading and writing, for callers that cannot do both at once."""
        if self.is_session:  # every write of a session touches its hash, every append the head of its stream
            return [self.keys[0], *self._streams]
        return sorted(self._guarded)

    def operations(self) -> Iterator[tuple[str, list[str]]]:
        """Yield guards and writes one by one, as the server sees them."""
        at, words = 0, [*self._guards, *self._writes]
        while at < len(words):
            last = at + 2 + int(words[at + 1])
            yield str(words[at]), [str(word) for word in words[at + 2 : last]]
            at = last

    def arguments(self) -> Sequence[Argument]:
        """Return the program as arguments of the script."""
        words = [*self.header, *self._guards, *self._writes]
        return words if len(words) < MAX_ARGUMENTS else [_encoder.encode(list(map(str, words)))]
