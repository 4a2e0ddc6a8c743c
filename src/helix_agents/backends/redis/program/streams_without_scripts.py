"""Change streams without scripts: WATCH the meta hash, read, MULTI, EXEC; the same effects as `lua/stream.lua`."""

from __future__ import annotations

import asyncio
from typing import Any, Literal
from weakref import WeakValueDictionary

from ....clock import pause_seconds
from ....errors import StoreUnavailable
from ....retry import CONTENTION
from ..client.connection import Command, Link, checked
from ..client.driver_errors import REFUSED
from ..client.servers import Patience, Servers
from ..keys import StreamKeys
from ..sessions.session_hash import as_fields

PAGE = 500

Entries = list[tuple[int, int, int]]
"""Sequence, step and time of chunks."""


class MultiStreams:
    """Changes streams by optimistic transactions."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, keys: StreamKeys, what: str, arguments: dict[str, Any]) -> Any:
        """Return the same reply as the script's."""
        lock = self._locks.get(keys.meta)
        if lock is None:
            lock = self._locks[keys.meta] = asyncio.Lock()
        async with lock:
            patience = Patience(self._servers)
            for attempt in CONTENTION.attempts():
                try:
                    async with self._servers.link(keys.meta) as link:
                        done, answer = await _attempt(link, keys, what, arguments)
                except REFUSED as error:
                    await patience.after(error)
                    continue
                if done:
                    return answer
                await asyncio.sleep(pause_seconds(attempt))
        raise StoreUnavailable(
            f"Redis, key {keys.meta!r} changed {CONTENTION.tries} times during the write. Try again."
        )


async def _attempt(link: Link, keys: StreamKeys, what: str, arguments: dict[str, Any]) -> tuple[bool, Any]:
    await link.one("WATCH", keys.meta)
    try:
        change = StreamChange(link, keys, arguments, as_fields(await link.one("HGETALL", keys.meta)))
        answer = await getattr(change, what)()
    except REFUSED:
        await link.one("UNWATCH")
        raise
    if not change.commands:
        await link.one("UNWATCH")
        return True, answer
    answers = await link.transaction([*change.commands, ("HGETALL", keys.meta)])
    if answers is None:
        return False, None
    # Beside the transaction: a user without permission for the channel may still write.
    await link.ask([("PUBLISH", arguments["channel"], "")])
    return True, answers[-1] if answer is WHOLE_HEAD else answer


WHOLE_HEAD = object()


class StreamChange:
    """One attempt at a change: decides from the stream's head which commands to queue."""

    def __init__(self, link: Link, keys: StreamKeys, arguments: dict[str, Any], fields: dict[str, str]) -> None:
        self.commands: list[Command] = []
        self._link = link
        self._keys = keys
        self._a = arguments
        self._status = fields.get("status", "")
        self._fields = fields
        self._missing = not fields or int(fields["updated_at"]) <= arguments["expired_before"]
        fence = int(fields.get("fence", 0))
        self._fenced = arguments["fence"] is not False and fence > arguments["fence"]
        self._refusal = [b"fenced", str(fence).encode()]
        self._raises_fence = arguments["fence"] is not False and fence < arguments["fence"]
        self._producer = ("", 0)
        self._head = {name: int(fields.get(name, 0)) for name in ("latest", "floor", "kept", "first", "revision")}

    async def open(self) -> Any:
        if self._fenced:
            return await self._link.one("HGETALL", self._keys.meta)
        self._raise_fence()
        if self._missing:
            await self._create(self._a["incarnation"])
        return WHOLE_HEAD if self.commands else await self._link.one("HGETALL", self._keys.meta)

    async def _create(self, incarnation: str) -> None:
        now, latest = self._a["now"], self._head["latest"]
        self._queue("DEL", self._keys.chunks, self._keys.producers)
        self._queue("HDEL", self._keys.meta, "final_output", "error")
        self._queue("HSETNX", self._keys.meta, "incarnation", incarnation)
        revision = self._head["revision"] + 1 if self._fields else 0
        fields = {"status": "active", "revision": revision, "latest": latest, "floor": latest, "kept": 0}
        fields |= {"first": latest + 1, "created_at": now, "updated_at": now}
        self._set(fields)
        await self._keep_alive()

    async def append(self) -> Any:
        refusal = await self.refusal(self._a["producer"], self._a["counter"])
        return refusal or [b"stored", str(await self.store(self._a["chunks"])).encode()]

    async def refusal(self, producer: str, counter: int) -> list[bytes] | None:
        """Return why an append changes nothing, with the number that belongs to the reason."""
        self._producer = producer, counter
        if self._missing:
            return [b"deleted"]
        known = await self._link.one("HGET", self._keys.producers, producer)
        if known is not None:
            last, sequence, _ = known.split(b":")
            if int(last) >= counter:
                return [b"stored", sequence]
        if self._fenced:
            return self._refusal
        return None if self._status == "active" else [self._status.encode()]

    async def store(self, chunks: list[str], ends: str = "") -> int:
        """Queue an append and, if it is the last one, the end of the stream; return the last chunk's sequence."""
        self._raise_fence()
        self._add(chunks)
        await self._retain(len(chunks) // 2)
        if ends:
            status, _, text = ends.partition("=")
            self._save_status(status, status == "ended" and text, status == "failed" and text)
        else:
            self._save({})
        producer, counter = self._producer
        remembered = f"{counter}:{self._head['latest']}:{self._a['now']}"
        self._queue("HSET", self._keys.producers, producer, remembered)
        await self._keep_alive()
        return self._head["latest"]

    async def status(self) -> Any:
        if self._missing:
            return None
        if self._fenced:
            return await self._link.one("HGETALL", self._keys.meta)
        self._raise_fence()
        if self._status not in self._a["allowed"]:
            return WHOLE_HEAD if self.commands else await self._link.one("HGETALL", self._keys.meta)
        self._save_status(self._a["status"], self._a["final_output"], self._a["error"])
        await self._keep_alive()
        return WHOLE_HEAD

    async def rewind(self) -> Any:
        if self._missing:
            return None
        if self._fenced:
            return self._refusal
        self._raise_fence()
        kept = await self._entries(self._head["floor"] + 1)
        doomed = [sequence for sequence, step, _ in kept if step > self._a["step_count"]]
        for start in range(0, len(doomed), PAGE):
            self._queue("XDEL", self._keys.chunks, *(f"{sequence}-0" for sequence in doomed[start : start + PAGE]))
        self._head["kept"] -= len(doomed)
        self._add(self._a["marker"])
        left = [sequence for sequence, step, _ in kept if step <= self._a["step_count"]]
        self._head["first"] = left[0] if left else self._head["latest"]
        self._save({"revision": self._head["revision"] + 1})
        await self._keep_alive()
        return len(doomed)

    async def reset(self) -> Any:
        if self._missing:
            return None
        if self._fenced:
            return self._refusal
        self._raise_fence()
        await self._empty(self._a["marker"], self._a["producer_memory"])
        return 1

    async def _empty(self, marker: list[str], producer_memory: int) -> None:
        self._queue("DEL", self._keys.chunks)
        self._head |= {"kept": 0, "floor": 0}
        self._add(marker)
        self._save_status("active", False, False)
        producers = as_fields(await self._link.one("HGETALL", self._keys.producers))
        for producer, remembered in producers.items():
            if int(remembered.rsplit(":", 1)[1]) <= self._a["now"] - producer_memory:
                self._queue("HDEL", self._keys.producers, producer)
        await self._keep_alive()

    def start_refusal(self, seen: str) -> list[bytes] | None:
        """Return why a turn cannot start on the stream, which must not have changed since it was read; `seen` is "" if
        there was none."""
        if self._fenced:
            return self._refusal
        if seen and self._missing:
            return [b"deleted"]
        moved = self._fields.get("latest") != seen if seen else bool(self._fields)
        return [self._status.encode()] if moved else None

    async def start(self, incarnation: str, producer_memory: int, marker: list[str]) -> None:
        """Queue the start of a turn's stream."""
        self._raise_fence()
        await (self._empty(marker, producer_memory) if self._fields else self._create(incarnation))

    async def delete(self) -> Any:
        if self._fenced:
            return self._refusal
        self._queue("DEL", *self._keys)
        return 1

    # -- parts

    def _queue(self, *command: Any) -> None:
        self.commands.append(command)

    def _raise_fence(self) -> None:
        if self._raises_fence:
            self._set({"fence": self._a["fence"]})

    def _set(self, fields: dict[str, Any]) -> None:
        self._queue("HSET", self._keys.meta, *(word for pair in fields.items() for word in pair))

    def _save(self, fields: dict[str, Any]) -> None:
        counters = {name: self._head[name] for name in ("latest", "floor", "kept", "first")}
        self._set({**counters, "updated_at": self._a["now"], **fields})

    def _save_status(self, status: str, final_output: str | Literal[False], error: str | Literal[False]) -> None:
        self._save({"status": status, "revision": self._head["revision"] + 1})
        for field, text in (("final_output", final_output), ("error", error)):
            self._queue(
                *(("HDEL", self._keys.meta, field) if text is False else ("HSET", self._keys.meta, field, text))
            )

    async def _keep_alive(self) -> None:
        left, (seconds, micros) = await self._link.ask([("PTTL", self._keys.session), ("TIME",)])
        lives = [int(checked(left))] if checked(left) > 0 else []
        if self._a["ttl"]:
            lives.append(int(self._a["ttl"] * 1.1 + 1000))
            self._set({"kept_until": int(seconds) * 1000 + int(micros) // 1000 + lives[-1]})
        if lives:
            for key in self._keys:
                self._queue("PEXPIRE", key, min(lives))

    def _add(self, chunks: list[str]) -> None:
        if self._head["kept"] == 0:
            self._head["first"] = self._head["latest"] + 1
        for step, text in zip(chunks[::2], chunks[1::2], strict=True):
            self._head["latest"] += 1
            self._head["kept"] += 1
            entry = f"{self._head['latest']}-0"
            self._queue("XADD", self._keys.chunks, entry, "m", f"{step}:{self._a['now']}", "c", text)

    async def _entries(self, first: int, limit: int | None = None) -> Entries:
        found: Entries = []
        while limit is None or len(found) < limit:
            count = PAGE if limit is None else min(PAGE, limit - len(found))
            page = await self._link.one("XRANGE", self._keys.chunks, str(first), "+", "COUNT", count)
            for name, (_, facts, *_rest) in page:
                step, _, written_at = facts.partition(b":")
                found.append((int(name[:-2]), int(step), int(written_at)))
            if len(page) < count:
                break
            first = found[-1][0] + 1
        return found

    async def _retain(self, added: int) -> None:
        head, most = self._head, self._a["max_chunks"]
        excess = max(0, head["kept"] - most) if most else 0
        if not excess and int(self._fields["created_at"]) > self._a["expired_before"]:
            return
        stored = await self._entries(head["first"], None if not excess else excess + 1)
        new = head["latest"] - added
        # Those of this very write are not in storage yet.
        rows = stored + [(new + place, 0, self._a["now"]) for place in range(1, added + 1)]
        dropped = 0
        for _, _, written_at in rows:
            old = head["kept"] - dropped > added and written_at <= self._a["expired_before"]
            if dropped >= excess and not old:
                break
            dropped += 1
        if dropped:
            head["floor"] = rows[dropped - 1][0]
            head["first"] = rows[dropped][0] if dropped < len(rows) else head["latest"] + 1
            head["kept"] -= dropped
            self._queue("XTRIM", self._keys.chunks, "MINID", "~", f"{head['first']}-0")
