"""Runs programs: by one script, or by WATCH and MULTI where the server forbids scripts. It finds out by itself which.

Either way a program happens as a whole or not at all, and every request is sent once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from redis import exceptions as redis_errors

from ..client.connection import Argument, checked
from ..client.driver_errors import REFUSED, NotReached, TranslatedErrors
from ..client.servers import Patience, Servers
from .vocabulary import Program
from .without_scripts import MultiRunner


class Refused(NamedTuple):
    """A guard did not hold; nothing was written."""

    reason: str
    status: str | None
    version: int | None
    created_at: int | None


class Done(NamedTuple):
    """The result of a program: its counts, the session's counters, and the requested replies."""

    removed: int
    turn: int
    moved: int
    """Whether the deadline of the session has moved."""
    version: int
    steps: int
    resumes: int
    messages: int
    sequence: int
    """The sequence of the last chunk that was appended."""
    answers: list[Any]


class Script:
    """Lua files of this package, joined into one script: each may use what earlier ones define."""

    def __init__(self, *parts: str) -> None:
        lua = files(__package__).joinpath("lua")
        self.source = "\n".join(lua.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in parts)
        self.digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


COMMIT = Script("words", "append", "start", "custom_state", "deadline", "guards", "operations")
STREAM = Script("append", "start", "stream")


def is_forbidden(error: Exception) -> bool:
    """Return whether the server's error means that scripts are not allowed at all."""
    text = str(error)
    if "in script" in text or "script:" in text:
        return False  # a script ran and failed
    lacks = text.lower().startswith(("noperm", "this user has no permissions")) or "no permissions to run" in text
    return (lacks and "eval" in text.lower()) or ("unknown command" in text.lower() and "eval" in text.lower())


async def evaluate(servers: Servers, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
    """Run a script, loading it into the server if necessary. Raises the driver's error if it is rejected."""
    by_digest = ("EVALSHA", script.digest, len(keys), *keys, *arguments)
    patience = Patience(servers)
    while True:
        try:
            (reply,) = await servers.ask(keys[0], [by_digest])
            if isinstance(reply, redis_errors.NoScriptError):
                (reply,) = await servers.ask(keys[0], [("EVAL", script.source, len(keys), *keys, *arguments)])
            return checked(reply)
        except REFUSED as error:
            await patience.after(error)


class Runner:
    """Runs programs."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.multi = MultiRunner(servers)
        self.scripts_allowed = True

    async def run(self, program: Program) -> Done | Refused:
        """Run a program; return its result, or the reason for its refusal."""
        with TranslatedErrors(f"key {program.keys[0]!r}"):
            try:
                reply = await self._reply(program)
            except redis_errors.ConnectionError as error:
                if isinstance(error, NotReached) or not program.repeatable:
                    raise
                reply = await self._reply(program)
        if reply[0] == 1:
            removed, turn, moved, version, steps, resumes, messages, sequence, *answers = reply[1:]
            return Done(removed, turn, moved, int(version), int(steps), int(resumes), messages, int(sequence), answers)
        seen = [None if each is None else each.decode() for each in reply[1:]]
        seen += [None] * (4 - len(seen))
        numbers = [None if each is None else int(each) for each in seen[2:4]]
        return Refused(seen[0] or "", seen[1], numbers[0], numbers[1])

    async def _reply(self, program: Program) -> list[Any]:
        if self.scripts_allowed:
            try:
                made: list[Any] = await evaluate(self.servers, COMMIT, program.keys, program.arguments())
                return made
            except redis_errors.ResponseError as error:
                if not is_forbidden(error):
                    raise
                self.scripts_allowed = False
        return await self.multi.run(program)
