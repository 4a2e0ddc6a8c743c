"""Ends of conversations that were put aside: read as one value, removed from the session, and restored.

A shelf is one JSON text in the session's hash of branches. It holds the messages, the checkpoints (the one that the end
follows first), the undo log and the staged rows of the end, what custom state held at its end of all that the undo log
touches, and the lists and objects that the log names. All of it grows with the end, not with the session. A program
requires that nothing has changed since the shelf was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from ....codec import decode, encode, to_struct
from ....errors import StoreUnavailable
from ....retry import CONFLICT
from ....stores.state.commit import LIST, OBJECT, BranchChanges
from ..client.connection import Command
from ..client.servers import Servers
from ..keys import SessionKeys, short_checkpoint_id
from ..program.vocabulary import ABSENT, Program
from .history import SEPARATOR, Entry, add_take_back, entry_of, shelves_of
from .session_hash import as_fields, as_texts, text_or_none
from .session_reader import checkpoint_from

ABOUT, STATE, DATA = "about:", "state:", "data:"
"""Prefixes of the fields in the hash of branches; the branch id follows."""


class Content(msgspec.Struct, omit_defaults=True):
    """The content of a key of custom state: all of it (`whole`), or only what an undo log touches."""

    whole: bool = False
    text: str | None = None
    items: list[str] = []
    """The items from `start` on."""
    start: int | None = None
    members: dict[str, str | None] = {}
    single: dict[str, str] = {}
    """Single items before `start`, by index."""


class Shelf(msgspec.Struct):
    """What a branch stores: everything after a checkpoint and a number of messages."""

    number: int
    kept: int
    messages: list[str]
    checkpoints: list[str]
    undo: list[str]
    staged: dict[str, str]
    custom: dict[str, Content]
    containers: dict[str, list[str] | dict[str, str]]

    @property
    def entries(self) -> list[Entry]:
        """The undo log of the end."""
        return [entry_of(text) for text in self.undo]

    @property
    def undo_kept(self) -> int:
        """How many entries of the undo log come before the end."""
        return checkpoint_from(self.checkpoints[0], self.number).undo_length

    def after(self, number: int, kept: int) -> Shelf:
        """Return the part of this shelf after a checkpoint and a number of messages."""
        checkpoints = self.checkpoints[number - self.number :]
        undo = self.undo[checkpoint_from(checkpoints[0], number).undo_length - self.undo_kept :]
        entries = [entry_of(text) for text in undo]
        return Shelf(
            number=number,
            kept=kept,
            messages=self.messages[kept - self.kept :],
            checkpoints=checkpoints,
            undo=undo,
            staged=self.staged,
            custom={field: _narrowed(self.custom[field], touched) for field, touched in _touched(entries).items()},
            containers={name: self.containers[name] for name in shelves_of(entries)},
        )


class Moving(msgspec.Struct):
    """What a program needs to change branches: the current end, guards, and the shelves to restore."""

    present: Shelf
    guards: dict[str, int | str | None]
    returned: dict[str, Shelf]


async def read_moving(servers: Servers, keys: SessionKeys, changes: BranchChanges) -> Moving | None:
    """Read what the moves need; return None if the session no longer has the checkpoint they return to."""
    for _ in CONFLICT.attempts():
        moving = await _read_once(servers, keys, changes)
        if moving != "changed":
            return moving
    raise StoreUnavailable(f"Session {keys.session_id!r} changes too fast to go back: try again.")


async def _read_once(servers: Servers, keys: SessionKeys, changes: BranchChanges) -> Moving | Literal["changed"] | None:
    first = changes.moves[0]
    row = text_or_none(await servers.one(keys.checkpoints, "LINDEX", keys.checkpoints, first.number - 1))
    if row is None:
        return None
    back = [DATA + move.returned for move in changes.moves if move.returned is not None]
    counted: list[Command] = [
        ("HGET", keys.main, "restores"),
        ("LLEN", keys.undo),
        ("LLEN", keys.checkpoints),
        ("LLEN", keys.messages),
    ]
    ends: list[Command] = [
        ("LRANGE", keys.undo, checkpoint_from(row, first.number).undo_length, -1),
        ("LRANGE", keys.checkpoints, first.number - 1, -1),
        ("LRANGE", keys.messages, first.message_count, -1),
        ("HGETALL", keys.staging),
        ("HMGET", keys.branches, *(back or [DATA])),
    ]
    *counts, undo, checkpoints, messages, staged, texts = await servers.run(keys.main, [*counted, *ends], atomic=True)
    entries = [entry_of(text) for text in as_texts(undo)]
    touched, shelves = _touched(entries), shelves_of(entries)
    wanted = [*counted, *_reads(keys, touched, shelves)]
    answers = await servers.run(keys.main, wanted, atomic=True)
    if answers[:4] != counts:
        return "changed"
    if any(text is None for text in texts[: len(back)]):
        return None
    custom, containers = _contents(answers[4:], touched, shelves)
    restores, undo_length, checkpoint_count, message_count = counts
    if int(message_count) < first.message_count or int(checkpoint_count) < first.number:
        return None
    present = Shelf(
        first.number, first.message_count, as_texts(messages), as_texts(checkpoints), as_texts(undo), as_fields(staged),
        custom, containers,
    )  # fmt: skip
    guards: dict[str, int | str | None] = {
        "restores": text_or_none(restores),
        "undo": int(undo_length),
        "checkpoints": int(checkpoint_count),
        "messages": int(message_count),
    }
    found = [to_struct(Shelf, decode(text.decode())) for text in texts[: len(back)]]
    return Moving(present, guards, dict(zip([field.removeprefix(DATA) for field in back], found, strict=True)))


def add_branch_changes(program: Program, keys: SessionKeys, changes: BranchChanges, moving: Moving | None) -> None:
    """Add guards and writes. Fails the program if the session no longer has the checkpoint that the moves return to."""
    if moving is not None:
        _add_moves(program, keys, changes, moving)
    elif changes.moves:
        program.require_field("checkpoint", "absent", "", "version")
    for branch_id, about, state in changes.rows:
        words = [ABOUT + branch_id, about] + ([] if state is None else [STATE + branch_id, state])
        program.create("HSET", keys.branches, *words)
    for branch_id in changes.dropped:
        program.do("HDEL", keys.branches, ABOUT + branch_id, STATE + branch_id, DATA + branch_id)


def _add_moves(program: Program, keys: SessionKeys, changes: BranchChanges, moving: Moving) -> None:
    guards = moving.guards
    restores = guards["restores"]
    program.require("rewind", ABSENT if restores is None else restores, "HGET", keys.main, "restores")
    for name, key in (("undo", keys.undo), ("checkpoints", keys.checkpoints), ("messages", keys.messages)):
        program.require("rewind", guards[name] or 0, "LLEN", key)
    program.guard("rows", "rewind", program.key(keys.staging), "", *moving.present.staged)
    present = moving.present
    for move in changes.moves:
        if present.number != move.number or present.kept != move.message_count:
            present = present.after(move.number, move.message_count)
        _take_out(program, keys, present)
        program.create("HSET", keys.branches, DATA + move.shelved, encode(msgspec.to_builtins(present)))
        if move.returned is not None:
            present = moving.returned[move.returned]
            _put_back(program, keys, present)
            program.do("HDEL", keys.branches, DATA + move.returned)
    program.do("HINCRBY", keys.main, "restores", 1)


def _take_out(program: Program, keys: SessionKeys, end: Shelf) -> None:
    add_take_back(program, keys, end.entries)
    program.op("cut", program.key(keys.undo), end.undo_kept)
    program.op("cut", program.key(keys.checkpoints), end.number)
    program.op("cut", program.key(keys.messages), end.kept)
    fork, *later = end.checkpoints
    undo_length, version, counted, *rest = fork.split(SEPARATOR)
    if int(counted) > end.kept:
        recounted = SEPARATOR.join((undo_length, version, str(end.kept), *rest))
        program.do("LSET", keys.checkpoints, end.number - 1, recounted)
    if later:
        program.do("HDEL", keys.checkpoint_ids, *_short_ids(keys, later))
    program.do("DEL", keys.staging)


def _put_back(program: Program, keys: SessionKeys, end: Shelf) -> None:
    program.op("cut", program.key(keys.checkpoints), end.number - 1)
    program.push(keys.checkpoints, end.checkpoints)
    if later := end.checkpoints[1:]:
        numbered = enumerate(_short_ids(keys, later), start=end.number + 1)
        program.create("HSET", keys.checkpoint_ids, *[word for number, short in numbered for word in (short, number)])
    for key, texts in ((keys.messages, end.messages), (keys.undo, end.undo)):
        if texts:
            program.push(key, texts)
    if end.staged:
        program.create("HSET", keys.staging, *[word for pair in end.staged.items() for word in pair])
    for field, content in end.custom.items():
        _put_content(program, keys, field, content)
    for name, container in end.containers.items():
        program.create("SADD", keys.history, name)
        _fill(program, keys.shelf(name), container)


def _put_content(program: Program, keys: SessionKeys, field: str, content: Content) -> None:
    if not content.whole:
        for index, text in content.single.items():
            program.do("LSET", keys.list_of(field), index, text)
        for member, member_text in content.members.items():
            if member_text is None:
                program.do("HDEL", keys.object_of(field), member)
            else:
                program.create("HSET", keys.object_of(field), member, member_text)
        if content.items:
            program.push(keys.list_of(field), content.items)
        return
    for container, registry in ((keys.list_of(field), keys.array_keys), (keys.object_of(field), keys.object_keys)):
        program.do("DEL", container)
        program.do("SREM", registry, field)
    if content.text is None:
        program.do("HDEL", keys.custom, field)
        return
    program.create("HSET", keys.custom, field, content.text)
    if content.text == LIST:
        program.create("SADD", keys.array_keys, field)
        _fill(program, keys.list_of(field), content.items)
    elif content.text == OBJECT:
        program.create("SADD", keys.object_keys, field)
        _fill(program, keys.object_of(field), {name: text or "" for name, text in content.members.items()})


def _fill(program: Program, key: str, container: list[str] | dict[str, str]) -> None:
    if isinstance(container, list):
        if container:
            program.push(key, container)
    else:
        program.create("HSET", key, *[word for pair in container.items() for word in pair])


def _short_ids(keys: SessionKeys, rows: Iterable[str]) -> list[str]:
    return [short_checkpoint_id(keys.session_id, checkpoint_from(text, 0).row.checkpoint_id) for text in rows]


# -- what an undo log touches


def _touched(entries: Iterable[Entry]) -> dict[str, Content]:
    """Return the keys that entries touch, and which parts of them; their texts are not filled in yet."""
    found: dict[str, Content] = {}
    for kind, field, *rest in entries:
        content = found.setdefault(field, Content(members={}, single={}))
        if kind in "kKlo":
            content.whole = True
        elif kind in "mM":
            content.members[rest[0]] = None
        elif kind == "i":
            content.single[rest[0]] = ""
        elif content.start is None:
            content.start = int(rest[0])
    for content in found.values():
        if content.start is not None:
            content.single = {index: text for index, text in content.single.items() if int(index) < content.start}
    return found


def _reads(keys: SessionKeys, touched: dict[str, Content], shelves: dict[str, str]) -> list[Command]:
    commands: list[Command] = []
    for field, content in touched.items():
        commands.append(("HGET", keys.custom, field))
        if content.whole:
            commands += [("LRANGE", keys.list_of(field), 0, -1), ("HGETALL", keys.object_of(field))]
            continue
        start = 2**40 if content.start is None else content.start
        commands.append(("LRANGE", keys.list_of(field), start, -1))
        commands.append(("HMGET", keys.object_of(field), *(content.members or [""])))
        commands += [("LINDEX", keys.list_of(field), index) for index in content.single]
    for name, kind in shelves.items():
        commands.append(("LRANGE", keys.shelf(name), 0, -1) if kind == "l" else ("HGETALL", keys.shelf(name)))
    return commands


def _contents(
    answers: Sequence[Any], touched: dict[str, Content], shelves: dict[str, str]
) -> tuple[dict[str, Content], dict[str, list[str] | dict[str, str]]]:
    """Return the replies to `_reads`."""
    left, custom = iter(answers), dict[str, Content]()
    for field, content in touched.items():
        text, items, members = text_or_none(next(left)), as_texts(next(left)), next(left)
        if content.whole:
            custom[field] = Content(whole=True, text=text, items=items, members=dict(as_fields(members)))
            continue
        names = {name: text_or_none(reply) for name, reply in zip(content.members, members, strict=False)}
        single = {index: text_or_none(next(left)) or "" for index in content.single}
        custom[field] = Content(items=items, start=content.start, members=names, single=single)
    containers = {
        name: as_texts(reply) if kind == "l" else as_fields(reply)
        for (name, kind), reply in zip(shelves.items(), left, strict=True)
    }
    return custom, containers


def _narrowed(content: Content, touched: Content) -> Content:
    """Restrict content to what one part of the undo log touched."""
    if touched.whole:
        return content
    first = (content.start or 0) if not content.whole else 0

    def item(index: str) -> str:
        return content.single[index] if index in content.single else content.items[int(index) - first]

    return Content(
        items=[] if touched.start is None else content.items[touched.start - first :],
        start=touched.start,
        members={name: content.members.get(name) for name in touched.members},
        single={index: item(index) for index in touched.single},
    )
