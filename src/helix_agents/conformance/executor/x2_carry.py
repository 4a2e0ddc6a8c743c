"""X2: where one backend holds sessions, streams and usage, one write stores all three; elsewhere the order is the same.

Checks of the stores make the combined write themselves. Checks of runs apply to every pair of stores.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ...chunks import Chunk
from ...errors import (
    ModelError,
    RunLost,
    StoreError,
    StoreUnavailable,
    StreamFenced,
    StreamNotActive,
    VersionConflict,
)
from ...llm.contract import TokenUsage
from ...llm.scripted import Call, Reply, ScriptedLLM
from ...state import StepWrites
from ...stores.along import Along
from ...streams.records import NewChunk
from ...streams.writer import BatchingWriter
from ...tools import ToolContext, tool
from ...types import CheckpointMeta, SessionState, StagedChanges
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import Parts, check, chunks_of, custom_state, executing, of_type, simple_agent, transcript
from .mortal import COMMIT

ENTRY = {"kind": "custom", "id": "e-1", "session_id": "s", "name": "pages", "value": 1}
META = CheckpointMeta("step", 1, 0)
NEWS: Chunk = {"type": "step_committed", "checkpoint_id": "", "step_count": 1, "step": 1}


def _carries(stores: StoreSet) -> bool:
    return stores.state.carries(stores.streams, stores.usage)


class _Load:
    """A session with a staged call, and two buffered chunks for the next write."""

    def __init__(self, stores: StoreSet, writer: BatchingWriter, session: SessionState) -> None:
        self.stores, self.writer, self.session = stores, writer, session

    @classmethod
    async def of(cls, stores: StoreSet, *, fence: int | None = None) -> _Load:
        session = await stores.state.create_session("s", agent_type="main", custom_state={"a": 1})
        writer = cast(BatchingWriter, await stores.streams.create_writer("s", "run", "main", fence=fence))
        for delta in ("one", "two"):
            writer.put({"type": "text_delta", "delta": delta, "step": 1})
        return cls(stores, writer, session)

    async def along(self) -> Along:
        def news(checkpoint_id: str, warnings: object) -> list[NewChunk]:
            return [self.writer.stamped({**NEWS, "checkpoint_id": checkpoint_id})]

        return Along(await self.writer.lend(), [ENTRY] if self.stores.usage else (), news)

    async def commit(self, along: Along, version: int = 1) -> Any:
        message = {"role": "assistant", "content": "onetwo"}
        return await self.stores.state.save_state_and_promote_staging(
            "s", self.session, [message], META, expected_version=version, along=along
        )

    async def expect_nothing(self, why: str) -> None:
        session = await self.stores.state.load_state("s")
        expect_same(session and session.version, 1, f"the version, {why}")
        expect_same(await transcript(self.stores, "s"), [], f"the messages, {why}")
        expect_same(await chunks_of(self.stores, "s"), [], f"the chunks, {why}")
        if self.stores.usage is not None:
            expect_same(await self.stores.usage.get_entries("s"), [], f"the usage, {why}")


@check("X2", "a commit with chunks and usage makes them visible together, and its checkpoint has their position")
async def carried_together(harness: Harness) -> None:
    stores = await harness.open_stores()
    if not _carries(stores):
        return  # then the executor preserves the order, which other checks cover
    load = await _Load.of(stores)
    row = StagedChanges("call", 0, StepWrites([{"kind": "replace", "path": ["a"], "value": 2}]))
    along = Along(await load.writer.lend())
    load.writer.landed(await stores.state.stage_calls("s", "step", [row], along=along))
    expect_same([chunk["delta"] for chunk in await chunks_of(stores, "s")], ["one", "two"], "the chunks of staging")
    load.writer.put({"type": "text_delta", "delta": "three", "step": 1})
    committed = await load.commit(await load.along())
    load.writer.landed(committed.sequence, added=1)
    chunks = await chunks_of(stores, "s")
    expect_same([chunk["type"] for chunk in chunks], ["text_delta"] * 3 + ["step_committed"], "the chunks")
    expect_same(chunks[-1]["checkpoint_id"], committed.checkpoint_id, "the checkpoint that step_committed names")
    latest = await stores.state.get_latest_checkpoint("s")
    expect_same([committed.sequence, latest and latest.stream_sequence], [4, 3], "the last sequence and the position")
    expect_same(await custom_state(stores, "s"), {"a": 2}, "custom state")
    if stores.usage is not None:
        expect_same([entry.id for entry in await stores.usage.get_entries("s")], ["e-1"], "the usage")
    await load.writer.write({"type": "text_delta", "delta": "four", "step": 2})
    expect_same(await load.writer.flush(), 5, "the sequence of the next chunk")


@check("X2", "a rejected commit writes none of its chunks, and they are sent later, once")
async def a_refused_commit_carries_nothing(harness: Harness) -> None:
    stores = await harness.open_stores()
    if not _carries(stores):
        return
    load = await _Load.of(stores)
    with raises(VersionConflict, "a commit at a wrong version"):
        await load.commit(await load.along(), version=7)
    await load.expect_nothing("after a wrong version")
    load.writer.returned(surely=True, added=1)
    await load.writer.flush()
    expect_same([chunk["delta"] for chunk in await chunks_of(stores, "s")], ["one", "two"], "the chunks")


@check("X2", "a stream that is fenced or closed rejects the commit that carries its chunks")
async def the_stream_refuses_the_commit(harness: Harness) -> None:
    for how in ("fenced", "paused"):
        stores = await harness.open_stores()
        if not _carries(stores):
            return
        await stores.state.delete_session("s")
        await stores.streams.delete_stream("s")
        load = await _Load.of(stores, fence=5)
        along = await load.along()
        if how == "fenced":
            await (await stores.streams.create_writer("s", "other", "main", fence=9)).close()
        else:
            await stores.streams.pause_stream("s")
        with raises(StreamFenced if how == "fenced" else StreamNotActive, f"a commit onto a stream that is {how}"):
            await load.commit(along)
        await load.expect_nothing(how)


@check("X2", "a write with chunks that is sent again happens once")
async def carried_once(harness: Harness) -> None:
    stores = await harness.open_stores()
    if not _carries(stores):
        return
    load = await _Load.of(stores)
    row, along = StagedChanges("call", 0, StepWrites()), Along(await load.writer.lend())
    sequences = [await stores.state.stage_calls("s", "step", [row], along=along) for _ in range(2)]
    expect_same(sequences, [2, 2], "the sequences")
    load.writer.landed(2)
    load.writer.put({"type": "text_delta", "delta": "three", "step": 1})
    along = await load.along()
    await load.commit(along)
    with raises(VersionConflict, "the same commit again"):
        await load.commit(along)
    load.writer.returned(surely=False, added=1)  # as if the reply to the first one was lost
    await load.writer.write({"type": "text_delta", "delta": "four", "step": 2})
    await load.writer.flush()
    deltas = [chunk.get("delta", chunk["type"]) for chunk in await chunks_of(stores, "s")]
    expect_same(deltas, ["one", "two", "three", "step_committed", "four"], "the chunks")
    expect_same(len(await transcript(stores, "s")), 1, "the messages")


class _Watching:
    """A state store that calls a check right after each commit, before the run continues."""

    def __init__(self, stores: StoreSet, *, loses: int = 0) -> None:
        self._stores = stores
        self._loses = loses
        self.seen: list[tuple[str, list[Chunk], int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stores.state, name)

    async def save_state_and_promote_staging(
        self, session_id: str, state: Any, messages: Any, meta: Any, **options: Any
    ) -> Any:
        committed = await self._stores.state.save_state_and_promote_staging(
            session_id, state, messages, meta, **options
        )
        if meta.kind == "step":
            usage = await self._stores.usage.get_entries(session_id) if self._stores.usage is not None else []
            self.seen.append((committed.checkpoint_id, await chunks_of(self._stores, session_id), len(usage)))
        self._loses -= 1
        if self._loses == 0:
            raise StoreUnavailable("the reply was lost")
        return committed


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Note something, and emit a lot."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    for _ in range(10):
        ctx.emit("shown", text * 100)
    return f"noted {text}"


USAGE = TokenUsage("model", prompt=1, completion=1)


@check("X2", "step_committed, output, the last tool_end and usage of a step become visible with its commit")
async def announced_with_the_commit(harness: Harness) -> None:
    stores = await harness.open_stores()
    watching: Any = _Watching(stores)
    script = ScriptedLLM([Reply("", [Call("note", {"text": "a"})], usage=USAGE), Reply("Done.", usage=USAGE)])
    agent = simple_agent(note, state={"notes": []})
    async with executing(Parts(watching, stores.streams, stores.usage), script) as executor:
        await (await executor.execute(agent, "Go", session_id="s")).result()
    expect_same(len(watching.seen), 2, "the commits")
    spent = 0
    for checkpoint_id, chunks, usage in watching.seen:
        if _carries(stores):
            named = [chunk["checkpoint_id"] for chunk in of_type(chunks, "step_committed")]
            expect(checkpoint_id in named, f"the commit {checkpoint_id} is not announced with it: {named}")
            expect(stores.usage is None or usage > spent, f"the usage of {checkpoint_id} is not stored with it")
        expect_same(len(of_type(chunks, "tool_end")) if _carries(stores) else 1, 1, "the finished calls")
        spent = usage
    if _carries(stores):
        expect_same(len(of_type(watching.seen[-1][1], "output")), 1, "the output with the last commit")


@check("X2", "a commit with a megabyte of chunks whose reply is lost happens once, also for readers")
async def the_reply_to_a_carrying_commit_is_lost(harness: Harness) -> None:
    stores = await harness.open_stores()
    script = ScriptedLLM([[Call("note", {"text": "a" * 1000})], "Done."])
    forgetful: Any = _Watching(stores, loses=2)  # the first commit is the claim's
    agent = simple_agent(note, state={"notes": []})
    async with executing(Parts(forgetful, stores.streams, stores.usage), script) as executor:
        result = await asyncio.wait_for((await executor.execute(agent, "Go", session_id="s")).result(), 60)
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    chunks = await chunks_of(stores, "s")
    types = [chunk["type"] for chunk in chunks]
    for kind, times in (("custom", 10), ("tool_end", 1), ("step_committed", 2), ("output", 1)):
        expect_same(types.count(kind), times, f"the chunks of type {kind}")
    expect_same(await custom_state(stores, "s"), {"notes": ["a" * 1000]}, "custom state")


class _Apart:
    """The same streams as another object, so that a state store cannot recognize its own backend."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@check("X2", "with separate stores, readers get the same chunks as when one write contains everything")
async def stores_that_live_apart(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(note, state={"notes": []})
    told: list[list[str]] = []
    for session_id, streams in (("together", stores.streams), ("apart", cast(Any, _Apart(stores.streams)))):
        script = ScriptedLLM([[Call("note", {"text": "a"}), Call("note", {"text": "b"})], "Done."])
        async with executing(Parts(stores.state, streams, stores.usage), script) as executor:
            result = await (await executor.execute(agent, "Go", session_id=session_id)).result()
        expect_same(result.output, "Done.", f"the output, {session_id}")
        chunks = await chunks_of(stores, session_id)
        told.append(sorted(f"{chunk['step']} {chunk['type']}" for chunk in chunks if chunk["type"] != "state_patch"))
    expect(
        not stores.state.carries(cast(Any, _Apart(stores.streams)), stores.usage),
        "a commit accepts chunks for a foreign stream",
    )
    expect_same(told[1], told[0], "the chunks")
    expect_same(await custom_state(stores, "apart"), await custom_state(stores, "together"), "custom state")


class _Refusing:
    """A state store that rejects the first commit of a certain call."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != COMMIT:
            return found

        async def refuse(session_id: str, *args: Any, **kwargs: Any) -> Any:
            staged = await self._inner.list_staged(session_id, args[2].step_id)
            for row in [*kwargs.get("unstaged", ()), *staged]:
                if any("poison" in str(op) for op in row.writes.ops):
                    raise StoreError("index row size exceeds the maximum")
            return await found(session_id, *args, **kwargs)

        return refuse


@check("X2", "the last tool_end of each call agrees with its stored outcome, also after a rejected commit")
async def the_last_tool_end_agrees(harness: Harness) -> None:
    stores = await harness.open_stores()
    refusing: Any = _Refusing(stores.state)
    calls = [Call("note", {"text": text}) for text in ("a", "poison", "b")]
    agent = simple_agent(note, state={"notes": []})
    for durability in ("call", "step"):
        script = ScriptedLLM([calls, "Done."])
        async with executing(Parts(refusing, stores.streams, stores.usage), script, durability=durability) as executor:
            await (await executor.execute(agent, "Go", session_id=durability)).result()
        ends = {c["tool_call_id"]: c["success"] for c in of_type(await chunks_of(stores, durability), "tool_end")}
        told = {m["tool_call_id"]: m["success"] for m in await transcript(stores, durability) if m["role"] == "tool"}
        expect_same(sorted(told.values()), [False, True, True], "the outcomes")
        expect_same(ends, told, f"the last tool_end of each call, durability={durability}")


@check("X2", "a chunk that cannot be stored fails the call that emitted it, and the step continues")
async def a_chunk_that_cannot_be_stored(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def shout(ctx: ToolContext) -> str:
        """Emit a number that does not survive JSON encoding."""
        ctx.emit("shouted", 10**5000)
        return "shouted"

    @tool
    def shout_in_thread(ctx: ToolContext) -> str:
        """Do the same from a thread."""
        ctx.emit("shouted", "\ud83d" + "\ude00")
        return "shouted"

    agent = simple_agent(shout, shout_in_thread, note, state={"notes": []})
    script = ScriptedLLM([[Call("shout"), Call("shout_in_thread"), Call("note", {"text": "a"})], "Done."])
    async with executing(stores, script) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message["success"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, [False, False, True], "which calls succeeded")


@check("X2", "a chunk that is too large for the database fails the call that emitted it, and the step continues")
async def a_chunk_that_is_too_large(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def pour(ctx: ToolContext) -> str:
        """Emit more than fits into a row of some databases."""
        ctx.emit("poured", "x" * 5_000_000)
        return "poured"

    agent = simple_agent(pour, note, state={"notes": []})
    script = ScriptedLLM([[Call("pour"), Call("note", {"text": "a"})], "Done."])
    async with executing(stores, script) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message["success"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    shown = [chunk["name"] for chunk in of_type(await chunks_of(stores, "s"), "custom")]
    expect_same([told, shown.count("shown")], [["poured" in shown, True], 10], "which calls succeeded, what was shown")
    expect_same(await custom_state(stores, "s"), {"notes": ["a"]}, "custom state")


class _Stopping:
    """A state store that calls a check right after the write that stops a session."""

    def __init__(self, stores: StoreSet) -> None:
        self._stores = stores
        self.seen: list[tuple[str, str, str]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stores.state, name)
        if name not in (COMMIT, "save_state"):
            return found

        async def write(session_id: str, state: SessionState, *args: Any, **kwargs: Any) -> Any:
            written = await found(session_id, state, *args, **kwargs)
            if state.status != "active":
                run = await self._stores.state.get_current_run(session_id)
                info = await self._stores.streams.get_stream_info(session_id)
                self.seen.append((state.status, str(run and run.status), str(info and info.status)))
            return written

        return write


@tool(execute="client")
async def ask(question: str) -> str:
    """Ask the client."""
    raise AssertionError("the client answers")


@check("X2", "a run that fails, suspends or is interrupted ends with its session and its stream in one write")
async def ends_in_one_write(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(ask, note, state={"notes": []})
    cases: list[tuple[str, list[Any], str, str]] = [
        ("failed", [ModelError("away")], "failed", "failed"),
        ("suspended", [[Call("ask", {"question": "?"})]], "suspended_client_tool", "paused"),
        ("interrupted", [[Call("note", {"text": "a"})], "Done."], "interrupted", "paused"),
    ]
    for session_id, script, status, stream in cases:
        stopping: Any = _Stopping(stores)
        async with executing(Parts(stopping, stores.streams, stores.usage), ScriptedLLM(script)) as executor:
            handle = await executor.execute(agent, "Go", session_id=session_id)
            if session_id == "interrupted":
                executor.runs.request_stop(handle.run_id, "enough", abort=False)
            result = await asyncio.wait_for(handle.result(), 60)
        expect_same(result.status, status, "the result")
        run, info = await stores.state.get_current_run(session_id), await stores.streams.get_stream_info(session_id)
        expect_same([run and run.status, info and info.status], [status, stream], f"run and stream, {session_id}")
        if _carries(stores):
            expect_same(
                stopping.seen, [(status, status, stream)], f"session, run and stream in one write, {session_id}"
            )
        last = (await chunks_of(stores, session_id))[-1]["type"]
        told = {"failed": "error", "suspended": "run_suspended", "interrupted": "run_interrupted"}
        expect_same(last, told[session_id], f"the last chunk, {session_id}")


@check("X2", "a stream that another process fences or pauses during a step rejects chunks, and nothing is committed")
async def a_stream_that_is_fenced_or_paused(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def meddle(how: str, stream_id: str) -> str:
        """Do to the stream what another process may do."""
        if how == "fenced":
            await (await stores.streams.create_writer(stream_id, "other", "main", fence=2**50)).close()
        else:
            await stores.streams.pause_stream(stream_id)
        return "done"

    for how in ("fenced", "paused"):
        for where, streams in (("together", stores.streams), ("apart", cast(Any, _Apart(stores.streams)))):
            session_id = f"{how}-{where}"
            script = ScriptedLLM([[Call("meddle", {"how": how, "stream_id": session_id})], "Done."])
            async with executing(Parts(stores.state, streams, stores.usage), script) as executor:
                handle = await executor.execute(simple_agent(meddle), "Go", session_id=session_id)
                if how == "fenced":
                    with raises(RunLost, f"a run, {session_id}"):
                        await asyncio.wait_for(handle.result(), 60)
                else:
                    result = await asyncio.wait_for(handle.result(), 60)
                    expect_same(result.status, "failed", f"the run, {session_id}")
            expect_same([m["role"] for m in await transcript(stores, session_id)], ["user"], f"messages, {session_id}")
            session = await stores.state.load_state(session_id)
            expect_same(session and session.step_count, 0, f"steps, {session_id}")
            shown = [chunk["type"] for chunk in await chunks_of(stores, session_id)]
            expect(not {"tool_end", "step_committed"} & set(shown), f"{session_id}: the stream shows {shown}")
