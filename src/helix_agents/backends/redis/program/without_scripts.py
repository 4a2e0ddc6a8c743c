"""Run programs without scripts: WATCH, read, MULTI, write, EXEC; start over if anything changed in between.

Every write of a session touches its main hash, so watching that one key is watching the session. `_Attempt` knows the
operations of `lua/`: what reads there is asked on the watched connection here, what writes there is queued.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

from ....clock import pause_seconds
from ....errors import StoreUnavailable
from ....retry import CONTENTION
from ....stores.state.commit import LIST, OBJECT
from ..client.connection import Argument, Command, Link
from ..client.driver_errors import REFUSED
from ..client.servers import Patience, Servers
from ..keys import STATIC, StreamKeys
from ..sessions.history import SEPARATOR
from ..sessions.session_hash import as_fields, as_texts
from .streams_without_scripts import StreamChange
from .vocabulary import ANYTHING, BATCH, Program

(MAIN, MESSAGES, CUSTOM, ARRAY_KEYS, OBJECT_KEYS, CHECKPOINTS, CHECKPOINT_IDS, UNDO, HISTORY) = range(9)
COUNTED = ("version", "step_count", "resume_count", "status")
FAMILIES = {ARRAY_KEYS: ":customstate:list", OBJECT_KEYS: ":customstate:object", HISTORY: ":history"}


class MultiRunner:
    """Runs programs by optimistic transactions. Within this process the writers of one key take turns."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, program: Program) -> list[Any]:
        """Run a program; return the same reply as the script."""
        lock = self._locks.get(program.keys[0])
        if lock is None:
            lock = self._locks[program.keys[0]] = asyncio.Lock()
        async with lock:
            patience = Patience(self._servers)
            for attempt in CONTENTION.attempts():
                try:
                    reply = await self._once(program)
                except REFUSED as error:
                    await patience.after(error)
                    continue
                if reply is not None:
                    return reply
                await asyncio.sleep(pause_seconds(attempt))
        raise StoreUnavailable(
            f"Redis, key {program.keys[0]!r} changed {CONTENTION.tries} times during the write. Try again."
        )

    async def _once(self, program: Program) -> list[Any] | None:
        async with self._servers.link(program.keys[0]) as link:
            if watched := program.watched():
                await link.one("WATCH", *watched)
            attempt = _Attempt(link, program)
            try:
                refused = await attempt.look()
            except REFUSED:
                await link.one("UNWATCH")
                raise
            if refused is not None:
                await link.one("UNWATCH")
                return refused
            answers = await link.transaction([*attempt.commands, *attempt.answers, *attempt.last])
            if answers is None:
                return None
            answers = answers[: len(attempt.commands) + len(attempt.answers)]
            if attempt.channel:  # beside the transaction: a user without permission for it may still write
                await link.ask([("PUBLISH", attempt.channel, "")])
            return [1, *attempt.counted(), *answers[len(attempt.commands) :]]


class _Attempt:
    """One attempt: the commands to queue, and the parts of the reply."""

    def __init__(self, link: Link, program: Program) -> None:
        self.commands: list[Command] = []
        self.answers: list[Command] = []
        self.last: list[Command] = []
        self.channel = ""
        """The channel on which to announce appended chunks."""
        self._removed = self._turn = self._moved = 0
        self._link = link
        self._program = program
        self._keys = program.keys
        self._ttl, self._head, self._tail = map(str, program.header)
        self._main: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        self._new: set[str] = set()
        self._notes: list[str] = []
        self._refused: str | None = None
        self._skip = self._sequence = 0
        self._stream: StreamChange | None = None

    async def look(self) -> list[Any] | None:
        """Read what the operations need and queue their writes; return the reply if a guard does not hold."""
        if self._program.is_session:
            self._main = as_fields(await self._link.one("HGETALL", self._keys[MAIN]))
        for name, words in self._program.operations():
            if self._skip:
                self._skip -= 1
                continue
            await getattr(self, f"_{name}")(*words)
            if self._refused is not None:
                seen = [self._main.get(each) for each in ("status", "version", "created_at")]
                return [0, self._refused.encode(), *[None if each is None else each.encode() for each in seen]]
        return None

    def counted(self) -> list[int]:
        """Return what the script would have counted, and the counters of the session."""
        session = [int(self._main.get(field, 0)) for field in ("version", "step_count", "resume_count")]
        messages = self._lengths.get(self._keys[MESSAGES], 0) if self._program.is_session else 0
        return [self._removed, self._turn, self._moved, *session, messages, self._sequence]

    # -- small words

    def _key(self, place: str) -> str:
        return self._keys[int(place) - 1]

    def _name(self, part: str, field: str) -> str:
        return f"{self._head}{part}{self._tail}:{field}"

    def _queue(self, *command: Argument) -> None:
        self.commands.append(command)

    async def _ask(self, *command: Argument) -> str | None:
        reply = await self._link.one(*command)
        return reply.decode() if isinstance(reply, bytes) else None if reply is None else str(reply)

    async def _length(self, key: str) -> int:
        """Return the length that a list will have at this point of the program."""
        if key not in self._lengths:
            self._lengths[key] = int(await self._link.one("LLEN", key))
        return self._lengths[key]

    async def _append(self, key: str, items: list[str], note: str = "") -> int:
        before = await self._length(key)
        if note:
            self._notes.append(f"{note}{before}")
        for start in range(0, len(items), BATCH):
            self._create("RPUSH", key, *items[start : start + BATCH])
        self._lengths[key] = before + len(items)
        return before

    def _create(self, *command: Argument) -> None:
        self._new.add(str(command[1]))
        self._queue(*command)

    async def _remembers(self) -> bool:
        return await self._length(self._keys[CHECKPOINTS]) > 0

    async def _log(self) -> None:
        if self._notes and await self._remembers():
            await self._append(self._keys[UNDO], self._notes)
        self._notes = []

    def _note_old(self, kind: str, *parts: str, old: str | None) -> None:
        entry = (kind.upper(), *parts) if old is None else (kind, *parts, old)
        self._notes.append(SEPARATOR.join(entry))

    # -- guards

    def _require(self, reason: str, mode: str, found: str | None, expected: str) -> None:
        if mode in ("absent", "some"):
            holds = (found is None) == (mode == "absent")
        elif mode == "is":
            holds = found == expected
        elif mode == "below":
            holds = int(found or 0) < int(expected)
        else:
            holds = found is not None and (expected in found if mode == "has" else f"|{found}|" in expected)
        if not holds:
            self._refused = reason

    async def _field(self, reason: str, mode: str, expected: str, field: str) -> None:
        self._require(reason, mode, self._main.get(field), expected)

    async def _reply(self, reason: str, mode: str, expected: str, command: str, key: str, *rest: str) -> None:
        self._require(reason, mode, await self._ask(command, self._key(key), *rest), expected)

    async def _cells(self, key: str, *words: str) -> None:
        half = len(words) // 2
        found = await self._link.one("HMGET", self._key(key), *words[:half])
        for field, expected, reply in zip(words[:half], words[half:], found, strict=True):
            text = "" if reply is None else reply.decode()
            if expected not in (text, ANYTHING):
                self._refused = "cells"
            if text:
                self._texts[field] = text

    async def _beginning_with(self, key: str, beginning: str) -> list[str]:
        return [field for field in as_texts(await self._link.one("HKEYS", key)) if field.startswith(beginning)]

    async def _rows(self, reason: str, key: str, beginning: str, *fields: str) -> None:
        if set(await self._beginning_with(self._key(key), beginning)) != set(fields):
            self._refused = reason

    # -- streams that go along

    async def _stream_at(self, meta: str, chunks: str, producers: str, *words: str) -> StreamChange:
        keys = StreamKeys(*map(self._key, (meta, chunks, producers)))
        fence, *numbers, self.channel = words
        about: dict[str, Any] = dict(
            zip(("now", "expired_before", "ttl", "max_chunks"), map(int, numbers), strict=True)
        )
        about["fence"] = int(fence) if fence else False
        fields = as_fields(await self._link.one("HGETALL", keys.meta))
        self._stream = StreamChange(self._link, keys, about, fields)
        return self._stream

    def _refuse_stream(self, refusal: list[bytes] | None) -> None:
        if refusal is not None:
            reason, detail = [*refusal, b""][:2]
            self._refused = f"stream:{reason.decode()}:{detail.decode()}"

    async def _appends(self, *words: str) -> None:
        *about, producer, counter = words
        change = await self._stream_at(*about)
        self._refuse_stream(await change.refusal(producer, int(counter)))

    async def _starts(self, *words: str) -> None:
        *about, seen = words
        change = await self._stream_at(*about)
        self._refuse_stream(change.start_refusal(seen))

    async def _chunks(self, ends: str, *chunks: str) -> None:
        assert self._stream is not None
        self._sequence = await self._stream.store(list(chunks), ends)
        self.commands += self._stream.commands

    async def _start(self, incarnation: str, producer_memory: str, *marker: str) -> None:
        assert self._stream is not None
        await self._stream.start(incarnation, int(producer_memory), list(marker))
        self.commands += self._stream.commands

    # -- writes to anything

    async def _call(self, command: str, key: str, *words: str) -> None:
        self._queue(command, self._key(key), *words)

    async def _fields(self, version: str, steps: str, resumes: str, status: str, *words: str) -> None:
        main = self._main
        for field, text in (("version", version), ("step_count", steps), ("resume_count", resumes)):
            main[field] = str(int(main.get(field, 0)) + int(text)) if text.startswith("+") else text
        main["status"] = status or main["status"]
        counts = [word for field in COUNTED for word in (field, main[field])]
        self._queue("HSET", self._keys[MAIN], *counts, *words)

    async def _born(self, created_at: str, incarnation: str) -> None:
        self._main |= {"created_at": created_at, "incarnation": incarnation}
        self._queue("HSET", self._keys[MAIN], "created_at", created_at, "incarnation", incarnation)

    async def _drop(self, *fields: str) -> None:
        self._queue("HDEL", self._keys[MAIN], *fields)

    async def _make(self, command: str, key: str, *words: str) -> None:
        self._create(command, self._key(key), *words)

    async def _push(self, key: str, note: str, *items: str) -> None:
        await self._append(self._key(key), list(items), note)

    async def _rename(self, old: str, new: str) -> None:
        self._queue("RENAME", self._key(old), self._key(new))

    async def _extend(self, key: str, least_ms: str) -> None:
        if int(await self._ask("PTTL", self._key(key)) or 0) < int(least_ms):
            self._queue("PEXPIRE", self._key(key), least_ms)

    async def _follow(self, key: str, other: str) -> None:
        if (left := int(await self._ask("PTTL", self._key(other)) or 0)) > 0:
            self.last.append(("PEXPIRE", self._key(key), left))

    async def _answer(self, command: str, key: str, *words: str) -> None:
        self.answers.append((command, self._key(key), *words))

    async def _unset(self, key: str, beginning: str) -> None:
        if doomed := await self._beginning_with(self._key(key), beginning):
            self._queue("HDEL", self._key(key), *doomed)
            self._removed += len(doomed)

    async def _cut(self, key: str, keep: str) -> None:
        name, length = self._key(key), await self._length(self._key(key))
        self._removed += max(0, length - int(keep))
        self._lengths[name] = min(length, int(keep))
        self._queue(*(("DEL", name) if keep == "0" else ("LTRIM", name, 0, int(keep) - 1)))

    # -- custom state

    async def _note(self, entry: str) -> None:
        self._notes.append(entry)

    async def _unless(self, field: str, text: str, skipped: str) -> None:
        if self._texts.get(field, "") == text:
            self._skip = int(skipped)

    async def _clear(self, field: str, shelf: str, *, old: str | None = None) -> None:
        old = old or self._texts.get(field)
        if old not in (LIST, OBJECT):
            self._note_old("k", field, old=old)
            return
        registry = ARRAY_KEYS if old == LIST else OBJECT_KEYS
        key = self._name(FAMILIES[registry], field)
        self._queue("SREM", self._keys[registry], field)
        if await self._ask("EXISTS", key) == "0":
            shelf = ""
        elif await self._remembers():
            self._queue("RENAME", key, self._name(":history", shelf))
            self._create("SADD", self._keys[HISTORY], shelf)
        else:
            self._queue("UNLINK", key)
        self._notes.append(SEPARATOR.join(("l" if old == LIST else "o", field, shelf)))

    async def _only(self, shelf: str, *stays: str) -> None:
        custom = self._keys[CUSTOM]
        for place, (field, old) in enumerate(as_fields(await self._link.one("HGETALL", custom)).items()):
            if field not in stays:
                await self._clear(field, f"{shelf}.{place}", old=old)
                self._queue("HDEL", custom, field)

    async def _patch(self, field: str, kind: str, key: str, skipped: str, *words: str) -> None:
        patch = self._patch_list if kind == LIST else self._patch_object
        if self._texts.get(field) == kind and await patch(self._key(key), field, list(words)):
            self._skip = int(skipped)

    async def _patch_list(self, key: str, field: str, items: list[str]) -> bool:
        old = as_texts(await self._link.one("LRANGE", key, 0, -1))
        changed = [place for place, (one, other) in enumerate(zip(old, items, strict=False)) if one != other]
        if len(old) > len(items) or len(changed) * 2 > len(old):
            return False
        for place in changed:
            self._note_old("i", field, str(place), old=old[place])
            self._queue("LSET", key, place, items[place])
        if len(items) > len(old):
            await self._append(key, items[len(old) :], SEPARATOR.join(("c", field, "")))
        return True

    async def _patch_object(self, key: str, field: str, flat: list[str]) -> bool:
        old, wanted = as_fields(await self._link.one("HGETALL", key)), dict(zip(flat[::2], flat[1::2], strict=True))
        changed = {name: text for name, text in wanted.items() if old.get(name) != text}
        gone = old.keys() - wanted.keys()
        if (len(changed) + len(gone)) * 2 > len(old):
            return False
        for name in (*changed, *gone):
            self._note_old("m", field, name, old=old.get(name))
        for pair in changed.items():
            self._create("HSET", key, *pair)
        if gone:
            self._queue("HDEL", key, *gone)
        return True

    # -- the rest of a session

    async def _checkpoint(self, short: str, before: str, position: str, behind: str) -> None:
        await self._log()
        if position.startswith("~"):
            position = str(self._sequence - int(position[1:]))
        undo, messages = [str(await self._length(self._keys[each])) for each in (UNDO, MESSAGES)]
        session = [self._main[field] for field in ("status", "created_at", "incarnation")]
        facts = (undo, self._main["version"], messages, *session, f"{before}{position}{behind}")
        number = await self._append(self._keys[CHECKPOINTS], [SEPARATOR.join(facts)]) + 1
        self._create("HSET", self._keys[CHECKPOINT_IDS], short, number)

    async def _recount(self, keep: str) -> None:
        key = self._keys[CHECKPOINTS]
        for place in range(1, await self._length(key) + 1):
            undo, version, count, *rest = (await self._ask("LINDEX", key, -place) or "").split(SEPARATOR)
            if int(count) <= int(keep):
                return
            self._queue("LSET", key, -place, SEPARATOR.join((undo, version, keep, *rest)))

    async def _mark(self, word: str) -> None:
        known = self._main.get("statuses", "")
        if word not in known:
            self._queue("HSET", self._keys[MAIN], "statuses", known + word)

    async def _run(self, ids: str, records: str, run_id: str, text: str, turn: str) -> None:
        self._turn = int(turn)
        if not self._turn:
            latest = await self._ask("LINDEX", self._key(ids), -1)
            record = "0:" if latest is None else await self._ask("HGET", self._key(records), latest) or "0:"
            self._turn = int(record.partition(":")[0]) + 1
        await self._append(self._key(ids), [run_id])
        self._create("HSET", self._key(records), run_id, f"{self._turn}:{text}")

    async def _ref(self, ids: str, records: str, ref_id: str, text: str) -> None:
        entered = ("RPUSH", self._key(ids), ref_id)
        if await self._ask("HEXISTS", self._key(records), ref_id) == "0" and entered not in self.commands:
            await self._append(self._key(ids), [ref_id])
        self._create("HSET", self._key(records), ref_id, text)

    async def _every_key(self) -> list[str]:
        keys = [f"{self._head}{part}{self._tail}" for part in STATIC]
        for registry, family in FAMILIES.items():
            names = as_texts(await self._link.one("SMEMBERS", self._keys[registry]))
            keys += [self._name(family, each) for each in names]
        return keys

    async def _deadline(self, expires_at: str, shrink: str = "") -> None:
        await self._log()
        seconds, micros = await self._link.one("TIME")
        now, ttl = int(seconds) * 1000 + int(micros) // 1000, int(self._ttl)
        current = int(self._main.get("deadline", 0))
        best = max(now, int(expires_at or self._main.get("expires_at", "0"))) + ttl
        keys = self._new
        if best - current >= ttl / 10 or (shrink == "1" and current - best > ttl):
            self._moved, current = 1, best
            self._queue("HSET", self._keys[MAIN], "deadline", best)
            keys = {*self._new, *await self._every_key()}
            await self._expire_companions(best)
        for key in keys:
            self._queue("PEXPIREAT", key, current)
        await self._length(self._keys[MESSAGES])

    def _companion(self, part: str) -> str:
        return f"{self._head.removesuffix(':session')}{part}{self._tail}"

    async def _expire_companions(self, deadline: int) -> None:
        until = int(await self._ask("HGET", self._companion(":stream:meta"), "kept_until") or deadline)
        self._queue("PEXPIREAT", self._companion(":usage:entries"), deadline)
        for part in (":stream:meta", ":stream", ":stream:producers"):
            self._queue("PEXPIREAT", self._companion(part), min(until, deadline))

    async def _destroy(self) -> None:
        self._queue("PERSIST", self._companion(":usage:entries"))
        self._queue("UNLINK", *await self._every_key())
