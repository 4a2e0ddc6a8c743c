"""The process that the kill checks kill: `python -m ...conformance.executor.worker "module:callable argument"`.

For every line of standard input it forks a child that runs the scenario until the session stops, and prints its process
id; when the child has ended, for any reason, it prints that too. Forking avoids a new interpreter for each death.
All lines are JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from typing import Any

from ...clock import system_clock
from ..tools.child import resolve
from .cast import make_author, make_llm
from .harness import make_executor
from .play import FAILED, begin_or_go_on
from .x9_branches_at_once import regenerate_once
from .x11_due import due_executor, start_due


def append_line(path: str, line: str) -> None:
    """Append one line to a file, whole even if the process dies right after."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


async def perform(spec: str, request: dict[str, Any]) -> None:
    """Pick the session up in this process and continue until it stops; or start what is due, or regenerate."""
    name, _, argument = spec.partition(" ")
    if "due_at" in request:
        async with resolve(name)(argument) as stores, due_executor(stores, lambda: request["due_at"]) as executor:
            await start_due(executor)
        return
    if "regenerate" in request:
        async with resolve(name)(argument) as stores:
            append_line(request["journal"], "ready")
            await regenerate_once(stores, request["regenerate"], request, append_line)
        return
    ahead_ms = int(request["ahead_ms"])
    agent = make_author(lambda line: append_line(request["journal"], line), hold=request.get("hold"))
    async with resolve(name)(argument) as stores:
        executor = make_executor(
            stores,
            make_llm(request["delay_seconds"]),
            agents=[agent],
            lease_seconds=request["lease_seconds"],
            poll_seconds=request.get("poll_seconds", 0.06),
            clock=lambda: system_clock() + ahead_ms,
        )
        async with executor:
            await begin_or_go_on(executor, request["session_id"])


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(spec: str) -> int:
    """Fork a child for every request."""
    _say("ready")
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            code = FAILED
            try:
                asyncio.run(perform(spec, json.loads(line)))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        _say({"exit": os.waitstatus_to_exitcode(status)})
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
