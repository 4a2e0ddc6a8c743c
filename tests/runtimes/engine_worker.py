"""Processes that run the kit's scenario on an engine, until it ends or they are killed.

`python -m tests.runtimes.engine_worker` forks one for every line of standard input, a JSON request, and prints its id,
which avoids a new interpreter for each death. Each process submits the scenario with the same key, works, and responds
to questions, as any of them may.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dbos import DBOSConfig
from temporalio.client import Client

import helix_agents.backends.postgres.opening  # imported once here instead of in each child
import helix_agents.backends.redis.opening
import helix_agents.backends.sqlite.opening  # noqa: F401
from helix_agents import AgentExecutor, AlreadyRunning, InvalidArgument, open_stores
from helix_agents.conformance.executor.cast import ANSWERS, make_author, make_llm
from helix_agents.conformance.executor.harness import make_executor
from helix_agents.conformance.executor.play import AGENT, INPUT, is_over
from helix_agents.conformance.executor.worker import append_line
from helix_agents.errors import NotResumable
from helix_agents.executor import WorkerPool
from helix_agents.executor.retrying import patiently
from helix_agents.runtimes.dbos import DBOSRuntime
from helix_agents.runtimes.temporal import TemporalRuntime

LEASE_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 0.05
Answer = Callable[..., Awaitable[Any]]
Submit = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def engine(kind: str, where: str, executor: AgentExecutor) -> AsyncIterator[tuple[Submit, Answer]]:
    """Yield functions that submit and respond through this engine, while this process works for it.

    `where`: the database of DBOS, or the address of Temporal.
    """
    if kind == "pool":
        async with WorkerPool(executor):
            yield executor.submit, lambda *words, **answer: answer_to_pool(executor, *words, **answer)
    elif kind == "dbos":
        config: DBOSConfig = {"name": "play", "system_database_url": where, "executor_id": f"p{os.getpid()}"}
        config["console_log_level"] = "CRITICAL"
        async with DBOSRuntime(executor, config) as dbos:
            yield dbos.submit, dbos.answer
    else:
        async with TemporalRuntime(executor, await Client.connect(where)) as temporal:
            yield temporal.submit, temporal.answer


async def answer_to_pool(executor: AgentExecutor, session_id: str, tool_call_id: str, **answer: Any) -> None:
    """Respond, and submit the rest of the run if that was the last question."""
    await executor.submit_tool_result(session_id, tool_call_id, **answer)
    try:
        if (await executor.can_resume(session_id)).can_resume:
            await executor.submit(AGENT, [], session_id=session_id)
    except (AlreadyRunning, NotResumable, InvalidArgument):
        return  # another process did


def journal_of(request: dict[str, Any]) -> Callable[[str], None]:
    """Writes down what is executed, and dies or holds the tools at the line that the request names."""
    path, last = request["journal"], request.get("last")

    def note(line: str) -> None:
        nonlocal last
        limit = last  # tools in threads call this concurrently
        append_line(path, line)
        if limit is None or len(Path(path).read_text().splitlines()) < limit:
            return
        last = None
        if request["end"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        Path(request["go"]).unlink(missing_ok=True)  # tools wait for this file

    return note


async def work(request: dict[str, Any]) -> None:
    """Take part in the scenario until it ends."""
    session_id = request["session_id"]
    agent = make_author(journal_of(request), hold=request["go"])
    async with open_stores(request["stores"]) as stores:
        async with make_executor(stores, make_llm(0.002), agents=[agent], lease_seconds=LEASE_SECONDS) as executor:
            async with engine(request["engine"], request["where"], executor) as (submit, answer):
                await submit(AGENT, INPUT, session_id=session_id, idempotency_key="play")
                # A read that is frozen for long times out when the process wakes up.
                while not await patiently(lambda: is_over(stores, session_id)):
                    handle = await executor.get_handle(AGENT, session_id)
                    assert handle is not None
                    if (await handle.get_state()).status.startswith("suspended"):
                        for wait in (await handle.result()).suspended:
                            await answer(session_id, wait.tool_call_id, **ANSWERS[wait.tool_name])
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)


def main() -> None:
    """Fork for every request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps dead children
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.dup2(2, 1)  # what libraries print must not mix with our ids
            request = json.loads(line)
            try:
                asyncio.run(work(request))
            except BaseException:
                Path(request["fault"]).write_text(traceback.format_exc())
            finally:
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
