"""Custom state as of any checkpoint: the current state, and an undo log back to each checkpoint.

Every change of custom state notes in the undo log, in the same atomic write, what was there before. A list or object
that was replaced as a whole is not copied but moved to the shelf, and the log names it. Each entry of the log is

    k field old        the key held this text            K field          the key was absent
    l field shelf      it was a list, now on the shelf   o field shelf    it was an object (no shelf: it was empty)
    m field member old the member held this text         M field member   the member was absent
    i field index old  the item held this text           c field length   the list had this length

with a separator that JSON and names never contain. A checkpoint's row says how long the log was then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ....codec import unescape_text
from ....stores.state.commit import LIST, OBJECT, KeyContent
from ..keys import SessionKeys
from ..program.vocabulary import Program

SEPARATOR = "\x1f"

Holder = str | list[str] | dict[str, str]
Entry = list[str]


def entry_of(text: str) -> Entry:
    """Return one entry of the log."""
    return text.split(SEPARATOR)


def shelves_of(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the shelves that entries name, with `l` or `o` for list or object."""
    return {entry[2]: entry[0] for entry in entries if entry[0] in "lo" and entry[2]}


class CustomImage:
    """The custom state of one session as it was read, by stored field name."""

    def __init__(self, holders: dict[str, Holder]) -> None:
        self._holders = holders

    def take_back(self, entries: Sequence[Entry], shelves: Mapping[str, list[str] | dict[str, str]]) -> None:
        """Undo the entries, the last one first."""
        for entry in reversed(entries):
            self._undo(entry, shelves)

    def _undo(self, entry: Entry, shelves: Mapping[str, list[str] | dict[str, str]]) -> None:
        kind, field, place, text = _parts(entry)
        holder = self._holders.get(field)
        if kind == "k":
            self._holders[field] = place
        elif kind == "K":
            self._holders.pop(field, None)
        elif kind in "lo":
            empty: Holder = [] if kind == "l" else {}
            self._holders[field] = shelves[place] if place else empty
        elif kind == "m" and isinstance(holder, dict):
            holder[place] = text
        elif kind == "M" and isinstance(holder, dict):
            holder.pop(place, None)
        elif kind == "i" and isinstance(holder, list):
            holder[int(place)] = text
        elif kind == "c" and isinstance(holder, list):
            del holder[int(place) :]

    def cells(self) -> Iterator[tuple[str, str, Iterable[str]]]:
        """Yield every key with its text and cells, in the form that `rebuild` takes: names are stored with JSON's
        escapes."""
        for field, holder in self._holders.items():
            if isinstance(holder, str):
                yield f'"{field}"', holder, ()
            elif isinstance(holder, list):
                yield f'"{field}"', LIST, holder
            else:
                yield f'"{field}"', OBJECT, [f'"{member}":{text}' for member, text in holder.items()]

    def contents(self) -> dict[str, KeyContent]:
        """Return the same as what a commit would set."""
        made: dict[str, KeyContent] = {}
        for field, holder in self._holders.items():
            if isinstance(holder, str):
                content = KeyContent(holder)
            elif isinstance(holder, list):
                content = KeyContent(LIST, items=tuple(holder))
            else:
                content = KeyContent(OBJECT, members=tuple((unescape_text(m), text) for m, text in holder.items()))
            made[unescape_text(field)] = content
        return made


def add_take_back(program: Program, keys: SessionKeys, entries: Sequence[Entry]) -> None:
    """Add the writes that undo these entries in storage, the last one first."""
    for entry in reversed(entries):
        _add_undo(program, keys, entry)


def _parts(entry: Entry) -> tuple[str, str, str, str]:
    """Return the kind, the field, and the rest of an entry: a text, a shelf or a position, then the text at that
    position."""
    kind, field, place, text = (*entry, "", "")[:4]
    return kind, field, place, text


def _add_undo(program: Program, keys: SessionKeys, entry: Entry) -> None:
    kind, field, place, text = _parts(entry)
    if kind in "kKlo":
        _add_put_back(program, keys, entry)
    elif kind == "m":
        program.create("HSET", keys.object_of(field), place, text)
    elif kind == "M":
        program.do("HDEL", keys.object_of(field), place)
    elif kind == "i":
        program.do("LSET", keys.list_of(field), place, text)
    elif place == "0":
        program.do("DEL", keys.list_of(field))
    else:
        program.do("LTRIM", keys.list_of(field), 0, int(place) - 1)


def _add_put_back(program: Program, keys: SessionKeys, entry: Entry) -> None:
    """Remove whatever the key holds now, and restore its earlier value."""
    kind, field = entry[0], entry[1]
    for container, registry in ((keys.list_of(field), keys.array_keys), (keys.object_of(field), keys.object_keys)):
        program.do("DEL", container)
        program.do("SREM", registry, field)
    if kind == "K":
        program.do("HDEL", keys.custom, field)
    elif kind == "k":
        program.create("HSET", keys.custom, field, entry[2])
    else:
        is_list = kind == "l"
        program.create("HSET", keys.custom, field, LIST if is_list else OBJECT)
        program.create("SADD", keys.array_keys if is_list else keys.object_keys, field)
        if entry[2]:
            container = keys.list_of(field) if is_list else keys.object_of(field)
            program.op("rename", program.key(keys.shelf(entry[2])), program.key(container))
            program.do("SREM", keys.history, entry[2])
