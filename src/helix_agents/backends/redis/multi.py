"""Programs without scripts: WATCH, look, MULTI, write, EXEC; again from the start if anything changed in between.

Every write of a session touches its main hash, so watching that one key is watching the session. The effects are those
of `commit.lua`, word for word: what reads there is asked on the watched connection here, what writes there is queued.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any
from weakref import WeakValueDictionary

from redis import exceptions as redis_errors

from ...errors import StoreUnavailable
from .connection import Command, Link, Servers, checked
from .multi_effects import NAMES, Seen, Work
from .program import Program
from .session_hash import as_fields

MAX_ATTEMPTS = 300


class MultiRunner:
    """Runs programs by optimistic transactions. Within this process the writers of one key take turns."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, program: Program) -> list[Any]:
        """The same answer as the script gives."""
        turn = self._turns.get(program.keys[0])
        if turn is None:
            turn = self._turns[program.keys[0]] = asyncio.Lock()
        async with turn:
            for attempt in range(MAX_ATTEMPTS):
                try:
                    answer = await self._once(program)
                except redis_errors.ResponseError as error:
                    if not await self._servers.redirected(error, attempt):
                        raise
                    continue
                if answer is not None:
                    return answer
                await asyncio.sleep(random.uniform(0, min(0.05, 0.001 * 2 ** min(attempt, 6))))
        raise StoreUnavailable(f"Redis, key {program.keys[0]!r}: others changed it {MAX_ATTEMPTS} times. Try again.")

    async def _once(self, program: Program) -> list[Any] | None:
        async with self._servers.link(program.keys[0]) as link:
            if watched := program.watched():
                await link.one("WATCH", *watched)
            try:
                main, cells = await _seen(link, program)
                refusal = await _refusal(link, program, main, cells)
                if refusal is not None:
                    await link.one("UNWATCH")
                    return refusal
                work = Work(link, program, main, cells)
                await work.look()
            except redis_errors.ResponseError:
                await link.one("UNWATCH")
                raise
            answers = await link.transaction(work.commands)
            return None if answers is None else work.answer(answers)


async def _seen(link: Link, program: Program) -> tuple[Seen, Seen]:
    """The main hash and the cells of custom state that the program speaks of."""
    session = program.session
    if not session:
        return {}, {}
    commands: list[Command] = [("HGETALL", program.keys[0])]
    names = session.get("cells", [])
    if names:
        commands.append(("HMGET", program.keys[NAMES.index("custom")], *names))
    main, *found = [checked(reply) for reply in await link.ask(commands)]
    texts = found[0] if found else []
    return as_fields(main), {name: text.decode() for name, text in zip(names, texts, strict=True) if text is not None}


async def _refusal(link: Link, program: Program, main: Seen, cells: Seen) -> list[Any] | None:
    """What the script answers when a guard does not hold."""
    for guard in program.guards:
        if not await _holds(link, program, guard, main, cells):
            seen = [main[name].encode() if name in main else None for name in ("status", "version", "created_at")]
            return [0, guard[1].encode(), *seen]
    return None


async def _holds(link: Link, program: Program, guard: list[Any], main: Seen, cells: Seen) -> bool:
    kind, expected = guard[0], guard[2]
    if kind == "field":
        return _same(main.get(guard[3]), expected)
    if kind == "field in":
        return main.get(guard[3]) in expected
    if kind == "field has":
        return expected in main.get(guard[3], "")
    if kind == "cell":
        return _same(cells.get(guard[3]), expected)
    if kind == "exists":
        return ("version" in main) is expected
    if kind == "staged":
        found = [each.decode() for each in await link.one("HKEYS", program.keys[NAMES.index("staging")])]
        return {field for field in found if field.startswith(guard[3])} == set(expected)
    reply = await link.one(guard[3], program.keys[guard[4] - 1], *guard[5:])
    return _same(reply.decode() if isinstance(reply, bytes) else reply, expected)


def _same(found: Any, expected: Any) -> bool:
    """Equal as in the script: what is absent is False there, and False is not 0."""
    if found is None or expected is False:
        return found is None and expected is False
    return bool(found == expected)
