"""X6: whatever a tool does, its call ends with a result for the model and the run continues."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from ...errors import StoreError, StoreUnavailable
from ...llm.scripted import Call, ScriptedLLM
from ...tools import Tool, ToolContext, tool
from ..expect import expect, expect_same
from ..harness import Harness
from .harness import Parts, check, chunks_of, custom_state, executing, simple_agent, transcript
from .mortal import COMMIT
from .view import View


class Bail(BaseException):
    """An exception that is not an `Exception`."""


@tool
async def waits_for_what_was_cancelled() -> str:
    """Wait for something that was cancelled."""
    job = asyncio.create_task(asyncio.sleep(60))
    job.cancel()
    await job
    return "never"


@tool
async def cancels_itself() -> str:
    """Cancel the task that it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)
    return "never"


@tool
def exits() -> str:
    """Exit, as a command line parser does."""
    sys.exit(2)


@tool
async def exits_in_the_loop() -> str:
    """Do the same in the event loop's thread."""
    sys.exit(2)


@tool
def bails() -> str:
    """Raise a BaseException."""
    raise Bail("out")


@tool
async def bails_in_the_loop() -> str:
    """Do the same in the event loop's thread."""
    raise Bail("out")


ESCAPES: dict[str, tuple[Tool, str]] = {
    "waits_for_what_was_cancelled": (waits_for_what_was_cancelled, "CancelledError"),
    "cancels_itself": (cancels_itself, "CancelledError"),
    "exits": (exits, "SystemExit: 2"),
    "exits_in_the_loop": (exits_in_the_loop, "SystemExit: 2"),
    "bails": (bails, "Bail: out"),
    "bails_in_the_loop": (bails_in_the_loop, "Bail: out"),
}


@check("X6", "a tool that exits, is cancelled or raises a BaseException is an error for the model")
async def nothing_escapes_from_a_tool(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(*(escape for escape, _ in ESCAPES.values()))
    script = ScriptedLLM([[Call(name) for name in ESCAPES], "Done."])
    async with executing(stores, script) as executor:
        result = await asyncio.wait_for((await executor.execute(agent, "Go", session_id="s")).result(), 20)
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, [f"Error: {words}" for _, words in ESCAPES.values()], "what the model saw")


@check("X6", "a bad count or chunk raises in the tool and does not harm the run")
async def nonsense_is_refused_in_the_tool(harness: Harness) -> None:
    stores = await harness.open_stores()
    wrong: list[Any] = [float("nan"), float("inf"), "3", None, True, 10**30]
    refused: list[str] = []

    @tool
    async def count(ctx: ToolContext) -> str:
        """Count and emit nonsense, then something."""
        for value in wrong:
            try:
                ctx.record_usage("pages", value)
            except ValueError:
                refused.append(str(value))
        nameless: list[Any] = [5, "", None]
        for name in nameless:
            try:
                ctx.emit(name)
            except ValueError:
                refused.append("name")
        for name in nameless:
            try:
                ctx.record_usage(name)
            except ValueError:
                refused.append("amount")
        ctx.record_usage("pages", 2)
        ctx.update_state(lambda draft: draft.update(done=True))
        return "ok"

    async with executing(stores, ScriptedLLM([[Call("count")], "Done."])) as executor:
        handle = await executor.execute(simple_agent(count, state={}), "Go", session_id="s")
        result = await handle.result()
        rollup = await handle.get_usage_rollup()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    expect_same(len(refused), len(wrong) + 6, f"how many were rejected ({refused})")
    expect_same(await custom_state(stores, "s"), {"done": True}, "custom state")
    expect(stores.usage is None or rollup.custom.get("pages") == 2, f"the pages that were counted: {rollup.custom}")


class _Picky:
    """A state store that cannot store a certain key, and raises when it commits or as soon as it stages."""

    def __init__(self, inner: Any, *, at: str, error: StoreError | None = None) -> None:
        self._inner = inner
        self._at = at
        self._error = error or StoreError("index row size exceeds the maximum")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in (self._at, COMMIT):
            return found

        async def refuse(session_id: str, *args: Any, **kwargs: Any) -> Any:
            if name == "stage_calls":
                rows = args[1]
            else:
                rows = [*kwargs.get("unstaged", ()), *await self._inner.list_staged(session_id, args[2].step_id)]
            if any("poison" in op["path"] for row in rows for op in row.writes.ops):
                raise self._error
            return await found(session_id, *args, **kwargs)

        return refuse


@tool
async def put(key: str, ctx: ToolContext) -> str:
    """Put something under a key."""
    ctx.update_state(lambda draft: draft.update({key: 1}))
    return f"put {key}"


@check("X6", "writes that cannot be committed fail their call, which the model sees, and do not block the session")
async def what_cannot_be_stored_is_a_failed_call(harness: Harness) -> None:
    stores = await harness.open_stores()
    calls = [Call("put", {"key": key}) for key in ("a", "poison", "b")]
    for at in ("save_state_and_promote_staging", "stage_calls"):
        for durability in ("call", "step"):
            if (at, durability) == ("stage_calls", "step"):
                continue
            session_id = f"{at}-{durability}"
            picky: Any = _Picky(stores.state, at=at)
            parts = Parts(picky, stores.streams, stores.usage)
            async with executing(parts, ScriptedLLM([calls, "Done."]), durability=durability) as executor:
                handle = await executor.execute(simple_agent(put, state={}), "Go", session_id=session_id)
                result = await asyncio.wait_for(handle.result(), 30)
            expect_same([result.status, result.output], ["completed", "Done."], f"the result ({session_id})")
            told = [m["success"] for m in await transcript(stores, session_id) if m["role"] == "tool"]
            expect_same(told, [True, False, True], f"which calls succeeded ({session_id})")
            expect_same(await custom_state(stores, session_id), {"a": 1, "b": 1}, f"custom state ({session_id})")
            view = View()
            for chunk in await chunks_of(stores, session_id):
                view.take(chunk)
            expect_same(view.state({}), {"a": 1, "b": 1}, f"the state of a reader ({session_id})")


@check("X6", "a session that died with writes that cannot be committed continues when it is resumed")
async def poison_does_not_outlive_a_crash(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(put, state={})
    script = ScriptedLLM([[Call("put", {"key": "a"}), Call("put", {"key": "poison"})], "Done."])
    away: Any = _Picky(stores.state, at=COMMIT, error=StoreUnavailable("away", nothing_written=True))
    async with executing(Parts(away, stores.streams, stores.usage), script) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        try:
            await handle.result()
        except StoreUnavailable:
            pass
        else:
            raise AssertionError("the store was away, and the run has a result")
    picky: Any = _Picky(stores.state, at=COMMIT)
    async with executing(Parts(picky, stores.streams, stores.usage), script) as executor:
        result = await asyncio.wait_for((await executor.resume(agent, "s")).result(), 30)
    expect_same(result.status, "completed", "the result")
    expect_same(await custom_state(stores, "s"), {"a": 1}, "custom state")


@check("X6", "a run whose stream is deleted fails with that reason, and another turn can follow")
async def the_stream_is_taken_away(harness: Harness) -> None:
    stores = await harness.open_stores()
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work until the check releases it."""
        started.set()
        await go_on.wait()
        return "worked"

    agent = simple_agent(work)
    async with executing(stores, ScriptedLLM([[Call("work")], "Done."])) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        await started.wait()
        await stores.streams.delete_stream("s")
        go_on.set()
        result = await asyncio.wait_for(handle.result(), 20)
        session, run = await stores.state.load_state("s"), await stores.state.get_current_run("s")
        expect_same(
            [result.status, session and session.status, session and session.failure_reason, run and run.status],
            ["failed", "failed", "stream_error", "failed"],
            "the result, the session, its reason and the run",
        )
        expect(result.error is not None and session is not None and session.error == result.error, "no error is stored")
        result = await (await executor.execute(agent, "Once more", session_id="s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the next turn")


class _Account(msgspec.Struct):
    """A state type."""

    balance: int = 0
    owner: str = "ann"


@check("X6", "a value that does not fit the agent's state type fails its call; it is neither staged nor stored")
async def what_does_not_fit_the_state_is_a_failed_call(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def put(key: str, value: Any, ctx: ToolContext) -> str:
        """Write to the plain draft, which checks nothing."""
        ctx.update_state(lambda draft: draft.update({key: value}))
        return "put"

    agent = simple_agent(put, state=_Account)
    calls = [Call("put", {"key": "balance", "value": "many"}), Call("put", {"key": "owner", "value": "bob"})]
    async with executing(stores, ScriptedLLM([calls, "Done."])) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
    expect_same(result.status, "completed", "the result")
    told = [message["success"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, [False, True], "which calls succeeded")
    expect_same(await custom_state(stores, "s"), {"balance": 0, "owner": "bob"}, "custom state")
    view = View()
    for chunk in await chunks_of(stores, "s"):
        view.take(chunk)
    expect_same(view.state({"balance": 0, "owner": "ann"}), await custom_state(stores, "s"), "the state of a reader")
