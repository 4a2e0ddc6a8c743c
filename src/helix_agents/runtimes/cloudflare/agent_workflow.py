"""AgentWorkflow: what an instance does, from the ticket of a run until the run stops. Imported only inside a Worker.

    class AgentRun(AgentWorkflow):
        def executor(self, env):
            return new_executor(env)

The engine stores what each Workflow step returns: a ticket, and how long to wait if the run is suspended. After a crash
it replays those and repeats the step that was open. A repeated step finds what the first attempt has stored; while that
attempt still runs, the repeated one waits for it, and an attempt that was replaced cannot write any more.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from workers import WorkflowEntrypoint
from workers.workflows import NonRetryableError

from ...codec import Json, decode, encode
from ...errors import InvalidArgument, SessionNotFound, StaleTicket
from ..engine import is_newer
from .workflows import ANSWER, CloudflareAgentExecutor, WorkflowsRuntime

STEP: dict[str, Any] = {
    "retries": {"limit": 20, "delay": "1 second", "backoff": "constant"},
    "timeout": "30 minutes",
}
HOPELESS = (InvalidArgument, SessionNotFound, StaleTicket)
"""What another attempt would not change."""

Kept = dict[str, Json]


class AgentWorkflow(WorkflowEntrypoint):  # type: ignore[misc]  # untyped: it exists only inside a Worker
    """The Workflow that runs agents. Subclass it and return your executor."""

    step_config: ClassVar[dict[str, Any]] = STEP
    """How often the engine repeats a step, and after what time it starts another attempt beside the first.

    The engine cannot stop an attempt that timed out, so the timeout must be longer than your longest step.
    """

    def executor(self, env: Any) -> CloudflareAgentExecutor:
        """Return the executor of the runs. Called once for each start of an instance."""
        raise NotImplementedError(f"{type(self).__name__}.executor(env) must return a CloudflareAgentExecutor.")

    async def run(self, event: Any, step: Any) -> Any:
        """Do the steps of a run until it stops; wait for events while it is suspended."""
        executor = self.executor(self.env)
        runtime = executor.runtime
        kept: Kept = decode(event["payload"]["ticket"])
        number = 0
        part = runtime.part_of(kept)
        while True:
            number += 1
            kept = await self._step(runtime, step, number, kept)
            if str(kept["status"]).startswith("suspended"):
                kept = await self._wait(step, number, kept)
            elif kept["status"] != "active":
                await executor.settle()
                return {name: kept[name] for name in ("session_id", "run_id", "status", "steps")}
            elif runtime.part_of(kept) > part:
                await _do(step, f"successor-{number}", self.step_config, partial(runtime.succeed, kept))
                return {"session_id": kept["session_id"], "status": "continued"}

    async def _step(self, runtime: WorkflowsRuntime, step: Any, number: int, kept: Kept) -> Kept:
        async def advance() -> Kept:
            done = await runtime.advance(kept)
            return {**done, "wait_ms": await runtime.wait_ms(done)}

        done: Kept = await _do(step, f"step-{number}", self.step_config, advance)
        return done

    async def _wait(self, step: Any, number: int, kept: Kept) -> Kept:
        """Wait for an answer, or until the next deadline of a question has passed."""
        try:
            event = await step.wait_for_event(f"answer-{number}", ANSWER, timeout=int(str(kept["wait_ms"])))
        except Exception as error:
            if "timeout" not in str(error).lower() and "timed out" not in str(error).lower():
                raise
            return kept
        sent: Kept = decode(event["payload"]["ticket"])
        return sent if is_newer(sent, kept) else kept


async def _do(step: Any, name: str, config: dict[str, Any], work: Any) -> Any:
    """Do some work as a step of the Workflow. Its result is stored as text: JavaScript has no integers."""

    async def attempt() -> str:
        try:
            return encode(await work())
        except HOPELESS as error:
            raise NonRetryableError(f"{type(error).__name__}: {error}") from error

    return decode(await step.do(name, config=config)(attempt)())
