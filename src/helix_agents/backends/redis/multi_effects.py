"""The effects of programs without scripts.

What reads in `commit.lua` is asked here on the watched connection, what writes there is queued here. Whatever changes
in one changes in the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from .connection import Command, Link
from .program import Effect, Program
from .session_hash import as_fields

Seen = dict[str, str]

SEPARATOR = "\x1f"
BATCH = 4000
NAMES = (
    *("main", "messages", "custom", "array_keys", "object_keys"),
    *("checkpoints", "checkpoint_ids", "undo", "history", "staging"),
)
"""The first keys of a program that writes a session, in the order of `keys.STATIC`."""

STATIC_COUNT = 14


class Work:
    """One attempt: the commands to queue, and what the answer is made of."""

    def __init__(self, link: Link, program: Program, main: Seen, cells: Seen) -> None:
        self.commands: list[Command] = []
        self._main = main
        self._cells = cells
        self._link = link
        self._program = program
        self._session = program.session
        self._new: set[str] = set()
        self._undo: list[str] = []
        self._keeps_history: bool | None = None
        self._removed = 0
        self._turn = 0
        self._moved = 0
        self._wanted_from = 0
        self._destroyed = False
        self._messages_cut = 0
        self._messages_added = 0
        self._undo_length = 0

    async def look(self) -> None:
        """Read what the effects need to know and queue what they do."""
        if self._session:
            self._set_fields(self._session)
        for effect in self._program.effects:
            await self.EFFECTS[effect[0]](self, effect)
        if not self._session or self._destroyed:
            return
        self._flush_undo()
        await self._keep_together()
        self._wanted_from = len(self.commands)
        self._queue("LLEN", self._named("messages"))
        for each in self._program.wanted:
            self._queue(each[0], self._key(each[1]), *each[2:])

    def answer(self, answers: list[Any]) -> list[Any]:
        """The script's answer."""
        if not self._session or self._destroyed:
            return [1]
        messages, *cells = answers[self._wanted_from :]
        counters = [self._main.get(name, "0") for name in ("version", "step_count", "resume_count")]
        return [1, counters[0], messages, *counters[1:], self._removed, self._turn, self._moved, *cells]

    def _set_fields(self, session: dict[str, Any]) -> None:
        """Queue what happens to the main hash, and know what it will hold."""
        flat = session["set"]
        new = dict(zip(flat[::2], flat[1::2], strict=True))
        for field, amount in zip(session["add"][::2], session["add"][1::2], strict=True):
            new[field] = str(int(new.get(field, self._main.get(field, 0))) + amount)
        mark = session.get("mark")
        if mark and mark not in self._main.get("statuses", ""):
            new["statuses"] = self._main.get("statuses", "") + mark
        if new:
            self._queue("HSET", self._key(1), *(word for pair in new.items() for word in pair))
        if session["gone"]:
            self._queue("HDEL", self._key(1), *session["gone"])
        self._main = {name: text for name, text in {**self._main, **new}.items() if name not in session["gone"]}

    # -- small words

    def _key(self, place: int) -> str:
        return self._program.keys[place - 1]

    def _named(self, name: str) -> str:
        return self._program.keys[NAMES.index(name)]

    def _name(self, part: str, suffix: str = "") -> str:
        assert self._session
        return f"{self._session['head']}{part}{self._session['tail']}{suffix}"

    async def _ask(self, *command: Any) -> Any:
        reply = await self._link.one(*command)
        return reply.decode() if isinstance(reply, bytes) else reply

    def _queue(self, *command: Any) -> None:
        self.commands.append(command)

    def _create(self, command: str, key: str, *words: Any) -> None:
        self._new.add(key)
        for start in range(0, len(words), BATCH):
            self._queue(command, key, *words[start : start + BATCH])

    async def _note(self, *parts: Any) -> None:
        if await self._remembers():
            self._undo.append(SEPARATOR.join(map(str, parts)))

    async def _remembers(self) -> bool:
        if self._keeps_history is None:
            self._keeps_history = await self._ask("LLEN", self._named("checkpoints")) > 0
        return self._keeps_history

    def _flush_undo(self) -> None:
        if self._undo:
            self._create("RPUSH", self._named("undo"), *self._undo)
            self._undo_length += len(self._undo)
            self._undo = []

    # -- effects on anything

    async def _plain(self, effect: Effect) -> None:
        self._queue(effect[1], self._key(effect[2]), *effect[3:])

    async def _creating(self, effect: Effect) -> None:
        self._create(effect[1], self._key(effect[2]), *effect[3:])

    async def _rename(self, effect: Effect) -> None:
        self._queue("RENAME", self._key(effect[1]), self._key(effect[2]))

    async def _extend(self, effect: Effect) -> None:
        key = self._key(effect[1])
        left = await self._ask("PTTL", key)
        if left < effect[2]:
            self._queue("PEXPIRE", key, effect[2])

    # -- effects on sessions

    async def _cut(self, effect: Effect) -> None:
        key, keep = self._key(effect[1]), effect[2]
        length = await self._ask("LLEN", key)
        if length > keep:
            self._removed += length - keep
            self._messages_cut += length - keep
            self._queue(*(("LTRIM", key, 0, keep - 1) if keep else ("UNLINK", key)))

    async def _recount(self, effect: Effect) -> None:
        key, keep = self._named("checkpoints"), effect[1]
        for place in range(1, await self._ask("LLEN", key) + 1):
            undo_length, version, count, *rest = (await self._ask("LINDEX", key, -place)).split(SEPARATOR)
            if int(count) <= keep:
                return
            self._queue("LSET", key, -place, SEPARATOR.join((undo_length, version, str(keep), *rest)))

    async def _messages(self, effect: Effect) -> None:
        self._create("RPUSH", self._named("messages"), *effect[1:])
        self._messages_added += len(effect) - 1

    async def _staged(self, beginning: str) -> list[str]:
        found = [each.decode() for each in await self._link.one("HKEYS", self._named("staging"))]
        return [field for field in found if field.startswith(beginning)]

    async def _stage(self, effect: Effect) -> None:
        for field in await self._staged(effect[1]):
            self._queue("HDEL", self._named("staging"), field)
        self._create("HSET", self._named("staging"), effect[1] + effect[2], effect[3])

    async def _unstage(self, effect: Effect) -> None:
        for field in await self._staged(effect[1]):
            self._queue("HDEL", self._named("staging"), field)
            self._removed += 1

    async def _unstage_all(self, effect: Effect) -> None:
        self._removed += await self._ask("HLEN", self._named("staging"))
        self._queue("UNLINK", self._named("staging"))

    async def _run(self, effect: Effect) -> None:
        ids, records, run_id, text = self._key(effect[1]), self._key(effect[2]), effect[3], effect[4]
        self._turn = await self._ask("LLEN", ids) + 1
        self._create("RPUSH", ids, run_id)
        self._create("HSET", records, run_id, f"{self._turn}:{text}")

    async def _ref(self, effect: Effect) -> None:
        ids, records, ref_id, text = self._key(effect[1]), self._key(effect[2]), effect[3], effect[4]
        known = await self._ask("HEXISTS", records, ref_id)
        queued = ("RPUSH", ids, ref_id) in self.commands
        self._create("HSET", records, ref_id, text)
        if not known and not queued:
            self._create("RPUSH", ids, ref_id)

    async def _checkpoint(self, effect: Effect) -> None:
        messages = self._named("messages")
        self._undo_length = await self._ask("LLEN", self._named("undo"))
        self._flush_undo()
        count = await self._ask("LLEN", messages) + self._messages_added - self._messages_cut
        number = await self._ask("LLEN", self._named("checkpoints")) + 1
        known = [self._main[name] for name in ("version", "status", "created_at")]
        facts = (self._undo_length, known[0], count, *known[1:], effect[2])
        self._create("RPUSH", self._named("checkpoints"), SEPARATOR.join(map(str, facts)))
        self._create("HSET", self._key(effect[3]), effect[1], number)

    # -- effects on custom state

    def _list_of(self, field: str) -> str:
        return self._name(":customstate:list", f":{field}")

    def _object_of(self, field: str) -> str:
        return self._name(":customstate:object", f":{field}")

    async def _shelve(self, registry: str, field: str, key: str, shelf_name: str) -> str:
        self._queue("SREM", registry, field)
        if not await self._ask("EXISTS", key):
            return ""
        if not await self._remembers():
            self._queue("UNLINK", key)
            return ""
        self._queue("RENAME", key, self._name(":history", f":{shelf_name}"))
        self._create("SADD", self._named("history"), shelf_name)
        return shelf_name

    async def _clear(self, field: str, old: str | None, shelf_name: str) -> None:
        if old == "[":
            shelf = await self._shelve(self._named("array_keys"), field, self._list_of(field), shelf_name)
            await self._note("l", field, shelf)
        elif old == "{":
            shelf = await self._shelve(self._named("object_keys"), field, self._object_of(field), shelf_name)
            await self._note("o", field, shelf)
        elif old is not None:
            await self._note("k", field, old)
        else:
            await self._note("K", field)

    async def _only(self, effect: Effect) -> None:
        custom = self._named("custom")
        for place, (field, old) in enumerate(as_fields(await self._link.one("HGETALL", custom)).items()):
            if field not in effect[1]:
                await self._clear(field, old, f"{effect[2]}.{place}")
                self._queue("HDEL", custom, field)

    async def _drop(self, effect: Effect) -> None:
        old = self._cells.get(effect[1])
        if old is not None:
            await self._clear(effect[1], old, effect[2])
            self._queue("HDEL", self._named("custom"), effect[1])

    async def _text(self, effect: Effect) -> None:
        old = self._cells.get(effect[1])
        if old != effect[3]:
            await self._clear(effect[1], old, effect[2])
            self._create("HSET", self._named("custom"), effect[1], effect[3])

    async def _list(self, effect: Effect) -> None:
        field, list_, items = effect[1], self._list_of(effect[1]), effect[3]
        old = self._cells.get(field)
        if old == "[" and await self._patch_list(field, list_, items):
            return
        await self._clear(effect[1], old, effect[2])
        self._create("HSET", self._named("custom"), field, "[")
        self._create("SADD", self._named("array_keys"), field)
        if items:
            self._create("RPUSH", list_, *items)

    async def _patch_list(self, field: str, list_: str, items: list[str]) -> bool:
        old = [each.decode() for each in await self._link.one("LRANGE", list_, 0, -1)]
        changed = [place for place, text in enumerate(old) if place < len(items) and text != items[place]]
        if len(old) > len(items) or len(changed) * 2 > len(old):
            return False
        for place in changed:
            await self._note("i", field, place, old[place])
            self._queue("LSET", list_, place, items[place])
        if len(items) > len(old):
            await self._note("c", field, len(old))
            self._create("RPUSH", list_, *items[len(old) :])
        return True

    async def _object(self, effect: Effect) -> None:
        field, object_, members = effect[1], self._object_of(effect[1]), effect[3]
        old = self._cells.get(field)
        if old == "{" and await self._patch_object(field, object_, members):
            return
        await self._clear(effect[1], old, effect[2])
        self._create("HSET", self._named("custom"), field, "{")
        self._create("SADD", self._named("object_keys"), field)
        if members:
            self._create("HSET", object_, *members)

    async def _patch_object(self, field: str, object_: str, members: list[str]) -> bool:
        old = as_fields(await self._link.one("HGETALL", object_))
        wanted = dict(zip(members[::2], members[1::2], strict=True))
        changed = [name for name, text in wanted.items() if old.get(name) != text]
        gone = [name for name in old if name not in wanted]
        if (len(changed) + len(gone)) * 2 > len(old):
            return False
        for name in changed:
            await self._note_member(field, name, old.get(name))
            self._create("HSET", object_, name, wanted[name])
        for name in gone:
            await self._note("m", field, name, old[name])
            self._queue("HDEL", object_, name)
        return True

    async def _note_member(self, field: str, name: str, old: str | None) -> None:
        await (self._note("M", field, name) if old is None else self._note("m", field, name, old))

    async def _item(self, effect: Effect) -> None:
        key = self._key(effect[2])
        await self._note("i", effect[1], effect[3], await self._ask("LINDEX", key, effect[3]))
        self._queue("LSET", key, effect[3], effect[4])

    async def _member(self, effect: Effect) -> None:
        key = self._key(effect[2])
        await self._note_member(effect[1], effect[3], await self._ask("HGET", key, effect[3]))
        self._create("HSET", key, effect[3], effect[4])

    async def _unmember(self, effect: Effect) -> None:
        key = self._key(effect[2])
        old = await self._ask("HGET", key, effect[3])
        if old is not None:
            await self._note("m", effect[1], effect[3], old)
            self._queue("HDEL", key, effect[3])

    async def _append(self, effect: Effect) -> None:
        key = self._key(effect[2])
        await self._note("c", effect[1], await self._ask("LLEN", key))
        self._create("RPUSH", key, *effect[3])

    # -- deadlines

    async def _every_key(self) -> list[str]:
        keys = self._program.keys[:STATIC_COUNT]
        families = {
            ":customstate:arraykeys": ":customstate:list",
            ":customstate:objectkeys": ":customstate:object",
            ":history": ":history",
        }
        for registry, family in families.items():
            for each in await self._link.one("SMEMBERS", self._name(registry)):
                keys.append(self._name(family, f":{each.decode()}"))
        return keys

    async def _keep_together(self) -> None:
        assert self._session
        seconds, micros = await self._link.one("TIME")
        now, ttl = int(seconds) * 1000 + int(micros) // 1000, self._session["ttl"]
        current = int(self._main.get("deadline", 0))
        expires_at = int(self._main.get("expires_at", 0))
        best = max(now, expires_at) + ttl
        keys = self._new
        if best - current >= ttl / 10:
            self._moved, current = 1, best
            self._queue("HSET", self._key(1), "deadline", best)
            keys = {*self._new, *await self._every_key()}
        for key in keys:
            self._queue("PEXPIREAT", key, current)

    async def _destroy(self, effect: Effect) -> None:
        self._queue("UNLINK", *await self._every_key())
        self._destroyed = True

    EFFECTS: ClassVar[dict[str, Callable[[Work, Effect], Awaitable[None]]]] = {
        "!": _plain,
        "+": _creating,
        "rename": _rename,
        "extend": _extend,
        "messages": _messages,
        "cut": _cut,
        "recount": _recount,
        "stage": _stage,
        "unstage": _unstage,
        "unstage_all": _unstage_all,
        "run": _run,
        "ref": _ref,
        "checkpoint": _checkpoint,
        "only": _only,
        "drop": _drop,
        "text": _text,
        "list": _list,
        "object": _object,
        "item": _item,
        "member": _member,
        "unmember": _unmember,
        "append": _append,
        "destroy": _destroy,
    }
