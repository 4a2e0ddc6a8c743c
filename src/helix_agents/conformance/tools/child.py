"""The child process of the kit: `python -m helix_agents.conformance.tools.child <mode> "<module:callable argument>"`.

Mode `jobs` opens the store, prints `"ready"` and then does one job per line of standard input. Mode `crash` forks for
every case it reads, so that each may die at its own point without starting a new interpreter. Mode `commits` commits
to one session and reports each commit, until it is killed. All lines are JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ...stores.state.contract import StateStore
from .faults import Plan
from .jobs import JOBS
from .operations import OPERATIONS
from .sample import add, meta, plain_state, push, user, writes

MAX_COMMITS = 10_000

Opener = Callable[[str], Awaitable[StateStore]]


def resolve(name: str) -> Any:
    """Return the object that `module:attribute` names."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"{name!r} is not of the form module:name.")
    return getattr(importlib.import_module(module), attribute)


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _jobs(opener: Opener, argument: str) -> None:
    store = await opener(argument)
    _say("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        while time.time() < request["start_at"]:
            pass  # A busy wait on purpose: sleeping processes would wake one after the other, without a race.
        try:
            _say({"answer": await JOBS[request["job"]](store, request["params"])})
        except Exception as error:
            _say({"error": f"{type(error).__name__}: {error}"})
    await store.close()


async def _commits(opener: Opener, argument: str) -> None:
    store = await opener(argument)
    session_id = json.loads(sys.stdin.readline())
    for number in range(MAX_COMMITS):
        step = f"step {number}"
        ops = writes(push("items", items=[number]), add("n"))
        await store.stage_changes(session_id, step, ops, tool_call_id="call-1")
        messages = [user(f"{number} {part}") for part in range(20)]
        await store.save_state_and_promote_staging(
            session_id, plain_state(session_id), messages, meta(number + 1, step)
        )
        _say(number)
    await store.close()


async def _crash(opener: Opener, argument: str, case: dict[str, Any]) -> None:
    store = await opener(argument)
    Plan(case["fault"], case["at"]).attach(store)
    await OPERATIONS[case["operation"]].run(store, case["session_id"])
    await store.close()


def _crash_all(opener: Opener, argument: str) -> None:
    for case in json.loads(sys.stdin.readline()):
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(_crash(opener, argument, case))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
    _say("done")


def main(argv: list[str]) -> int:
    """Read the arguments, import the function that opens the store, and run the mode."""
    mode, spec = argv
    name, _, argument = spec.partition(" ")
    opener: Opener = resolve(name)
    match mode:
        case "jobs":
            asyncio.run(_jobs(opener, argument))
        case "commits":
            asyncio.run(_commits(opener, argument))
        case "crash":
            _crash_all(opener, argument)
        case _:
            raise ValueError(f"Unknown mode {mode!r} of the kit's child process.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
