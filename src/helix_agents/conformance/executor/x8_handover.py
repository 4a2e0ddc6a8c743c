"""X8: runs move from process to process, submitted, stepped or recovered, and nothing happens twice."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from ...errors import AlreadyRunning, IdempotencyConflict, InvalidArgument, ModelError, StaleTicket, StreamFenced
from ...executor import AgentExecutor, Stepper, Ticket
from ...llm.scripted import Call, Line, ScriptedLLM
from ...streams.base import StreamManagerBase
from ...tools import ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from ..tools.dump import dump
from .harness import Clockwork, check, chunks_of, executing, make_executor, of_type, simple_agent, transcript
from .mortal import Died, Life
from .play import AGENT, INPUT, expect_same_remains
from .x2_crash import Act, attempt, perform

STEPS = 4


def _script() -> ScriptedLLM:
    return ScriptedLLM([*([Call("work", {"n": n})] for n in range(STEPS)), "Done."])


@tool
async def work(n: int, ctx: ToolContext) -> str:
    """Work."""
    ctx.update_state(lambda draft: draft["done"].append(n))
    return f"did {n}"


def _agent() -> Any:
    return simple_agent(work, state={"done": []})


async def _undisturbed(harness: Harness) -> Any:
    stores = await harness.open_stores()
    async with executing(stores, _script()) as executor:
        await (await executor.execute(_agent(), "Go", session_id="plain")).result()
    return await transcript(stores, "plain")


async def _expect_one_plain_run(stores: StoreSet, session_id: str, expected: Any) -> None:
    """Fail unless it looks as if one process had run it: one record, one start in the stream, the same messages."""
    expect_same(await transcript(stores, session_id), expected, "the conversation")
    runs = [(run.status, run.step_count) for run in await stores.state.list_runs(session_id)]
    expect_same(runs, [("completed", STEPS + 1)], "the runs")
    chunks = await chunks_of(stores, session_id)
    told = [chunk["type"] for chunk in of_type(chunks, "run_started", "run_resumed", "stream_rewound")]
    expect_same(told, ["run_started"], "what the stream reports about runs")
    expect_same(len(of_type(chunks, "step_committed")), STEPS + 1, "commits that the stream reports")


# -- submitted


@check("X8", "a submitted run waits, is found by any process, and continues in the same record")
async def submitted(harness: Harness) -> None:
    expected = await _undisturbed(harness)
    stores = await harness.open_stores()
    async with executing(stores, _script()) as front:
        handle = await front.submit(_agent(), "Go", session_id="s", user_id="u", tags=["t"], metadata={"m": "1"})
        reading = asyncio.create_task(_all_chunks(handle))
        waiting = asyncio.create_task(handle.result())
        run = await stores.state.get_current_run("s")
        expect(run is not None and run.lease_until == 0, "a submitted run has an owner")
        expect_same(
            [it.session_id for it in await stores.state.list_claimable(1)], ["s"], "the runs that wait for a worker"
        )
        with raises(AlreadyRunning, "executing a session that waits for a worker"):
            await front.execute(_agent(), "Now", session_id="s")
        with raises(AlreadyRunning, "submitting to a session that waits for a worker"):
            await front.submit(_agent(), "Now", session_id="s")
        async with executing(await harness.open_stores(), _script(), agents=[_agent()]) as worker:
            (taken,) = await worker.recover()
            expect_same((taken.session_id, taken.run_id), ("s", handle.run_id), "what was picked up")
            expect_same((await taken.result()).output, "Done.", "the worker's result")
            expect_same(await worker.recover(), [], "what is left to pick up")
        expect_same((await asyncio.wait_for(waiting, 20)).output, "Done.", "the result for the submitter")
        told = [chunk["type"] for chunk in await asyncio.wait_for(reading, 20)]
        expect_same((told[0], told[-1]), ("run_started", "output"), "the first and the last chunk of its reader")
    await _expect_one_plain_run(stores, "s", expected)
    state = await stores.state.load_state("s")
    assert state is not None
    expect_same((state.user_id, state.tags, state.metadata), ("u", ("t",), {"m": "1"}), "the session's labels")


async def _all_chunks(handle: Any) -> list[dict[str, Any]]:
    return [chunk async for chunk in handle.stream()]


@check("X8", "the next turn of a finished or interrupted session can be submitted")
async def submitted_next(harness: Harness) -> None:
    stores = await harness.open_stores()
    llm = ScriptedLLM(["One.", "Two.", "Three."])
    async with executing(stores, llm, agents=[simple_agent()]) as executor:
        await (await executor.execute("main", "First", session_id="s")).result()
        handle = await executor.submit("main", "Second", session_id="s")
        (taken,) = await executor.recover()
        expect_same((await taken.result()).output, "Two.", "the second turn")
        expect_same((await handle.result()).output, "Two.", "the second turn, as its submitter sees it")
        texts = [chunk["delta"] for chunk in await _all_chunks(handle) if chunk["type"] == "text_delta"]
        expect_same("".join(texts), "Two.", "what the stream shows")
        await executor.submit("main", "Third", session_id="s")
        await executor.interrupt("s")
        expect_same(await executor.recover(), [], "what is picked up from an interrupted session")
        await executor.submit("main", "Go on", session_id="s")
        (taken,) = await executor.recover()
        expect_same((await taken.result()).output, "Three.", "the third turn")
    said = [message["content"] for message in await transcript(stores, "s") if message["role"] == "user"]
    expect_same(said, ["First", "Second", "Third", "Go on"], "the user's messages")


@check("X8", "the same request submitted twice, even concurrently, is one run")
async def submitted_twice(harness: Harness) -> None:
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(["Done."]), agents=[simple_agent()]) as executor:
        handles = await asyncio.gather(*(executor.submit("main", "Go", idempotency_key="k") for _ in range(5)))
        expect_same(len({handle.run_id for handle in handles}), 1, "the runs of one request")
        with raises(IdempotencyConflict, "another request with the same key"):
            await executor.submit("main", "Stop", idempotency_key="k")
        (taken,) = await executor.recover()
        await taken.result()
        again = await executor.submit("main", "Go", idempotency_key="k")
        expect_same((again.run_id, (await again.result()).output), (taken.run_id, "Done."), "the request, sent again")


@check("X8", "a process that dies while it submits has submitted all or nothing", kind="faults")
async def submitted_or_not(harness: Harness) -> None:
    for last in range(1, 12):
        for reply_lost in (False, True):
            stores, life = await harness.open_stores(), Life(last, reply_lost=reply_lost)
            name = f"s-{last}-{reply_lost}"
            dying = make_executor(life.wrap(stores), _script())
            try:
                await dying.submit(_agent(), "Go", session_id=name)
            except Died:
                await life.bury()
            await dying.close()
            session = await stores.state.load_state(name)
            if session is None:
                continue
            async with executing(stores, _script(), agents=[_agent()]) as worker:
                (taken,) = await worker.recover()
                expect_same((await taken.result()).output, "Done.", f"dead at call {last}: the output")
            expect_same(len(await stores.state.list_runs(name)), 1, f"dead at call {last}: the runs")


@check("X8", "of many concurrent workers, exactly one picks up each submitted run", kind="tasks")
async def taken_once(harness: Harness) -> None:
    stores = await harness.open_stores()
    llm = ScriptedLLM(lambda request: "Done.")
    async with executing(stores, llm) as front:
        for number in range(12):
            await front.submit(simple_agent(), "Go", session_id=f"s{number}")
    workers = [make_executor(await harness.open_stores(), llm, agents=[simple_agent()]) for _ in range(4)]
    taken = await asyncio.gather(*(worker.recover() for worker in workers))
    names = sorted(handle.session_id for handles in taken for handle in handles)
    expect_same(names, sorted(f"s{number}" for number in range(12)), "what was picked up")
    for handles in taken:
        for handle in handles:
            await handle.result()
    for worker in workers:
        await worker.close()
    for number in range(12):
        messages = await transcript(stores, f"s{number}")
        expect_same([message["content"] for message in messages], ["Go", "Done."], "a conversation")


@check("X8", "runs that an engine steps do not hide runs that wait for a worker")
async def not_crowded_out(harness: Harness) -> None:
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(["Done."]), agents=[simple_agent()]) as executor:
        for number in range(3):
            await Stepper(executor).begin("main", "Go", session_id=f"stuck-{number}")
        for number in range(3):
            await executor.submit("main", "Go", session_id=f"s{number}")
        taken = [handle.session_id for _ in range(2) for handle in await executor.recover(limit=2)]
        expect_same(sorted(taken), ["s0", "s1", "s2"], "what was picked up, two at a time")


# -- stepped


@check("X8", "a run that is stepped through many processes looks like a run in one")
async def stepped(harness: Harness) -> None:
    expected = await _undisturbed(harness)
    stores = await harness.open_stores()
    async with executing(stores, _script()) as executor:
        ticket = await Stepper(executor).begin(_agent(), "Go", session_id="s")
    expect(not ticket.done, "a run that has only started is done")
    steps = 0
    while not ticket.done:
        plain = msgspec.json.decode(msgspec.json.encode(ticket))
        async with executing(await harness.open_stores(), _script(), agents=[_agent()]) as executor:
            expect_same(await executor.recover(), [], "what others pick up while an engine steps the run")
            ticket = await Stepper(executor).step(_agent(), msgspec.convert(plain, Ticket))
        steps += 1
        expect_same(ticket.steps, steps, "the steps that the ticket counts")
    expect_same((ticket.status, ticket.output), ("completed", "Done."), "the last ticket")
    await _expect_one_plain_run(stores, "s", expected)


@check("X8", "two processes that take turns stepping through a run behave like one")
async def stepped_by_turns(harness: Harness) -> None:
    expected = await _undisturbed(harness)
    rng = random.Random(harness.options.seed)
    stores, others = await harness.open_stores(), await harness.open_stores()
    async with executing(stores, _script()) as one, executing(others, _script()) as other:
        steppers = (Stepper(one), Stepper(other))
        for number in range(4):
            ticket = await steppers[0].begin(_agent(), "Go", session_id=f"s{number}")
            while not ticket.done:
                ticket = await rng.choice(steppers).step(_agent(), ticket)
            await _expect_one_plain_run(stores, f"s{number}", expected)


@check("X8", "a process that runs several steps on a stream that batches its writes is fenced by the next owner")
async def steps_in_a_row(harness: Harness) -> None:
    expected = await _undisturbed(harness)
    stores, others = await harness.open_stores(), await harness.open_stores()
    for streams in (stores.streams, others.streams):
        if isinstance(streams, StreamManagerBase):
            streams.gather_seconds = 0.02
    async with executing(stores, _script()) as one, executing(others, _script()) as other:
        mine, theirs, agent = Stepper(one), Stepper(other), _agent()
        ticket = await mine.begin(agent, "Go", session_id="s")
        for _ in range(3):
            ticket = await mine.step(agent, ticket)
        stalled = stores.streams.attach_writer("s", ticket.run_id, "main", fence=await _epoch(stores))
        ticket = await theirs.step(agent, ticket)
        if stalled is not None:
            with raises(StreamFenced, "a writer of the previous owner"):
                await stalled.write({"type": "text_delta", "delta": "late", "step": ticket.steps})
                await stalled.flush()
        while not ticket.done:
            ticket = await mine.step(agent, ticket)
    await _expect_one_plain_run(stores, "s", expected)


async def _epoch(stores: StoreSet) -> int:
    session = await stores.state.load_state("s")
    return 0 if session is None else session.owner_epoch


@check("X8", "a ticket that is old, in use, or of another agent or turn is rejected and changes nothing")
async def odd_tickets(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    async with executing(stores, _script(), clock=clock) as executor:
        stepper, agent = Stepper(executor), _agent()
        first = await stepper.begin(agent, "Go", session_id="s")
        tries = await asyncio.gather(*(Stepper(executor).step(agent, first) for _ in range(4)), return_exceptions=True)
        won = [found for found in tries if isinstance(found, Ticket)]
        odd = [found for found in tries if not isinstance(found, Ticket | AlreadyRunning | StaleTicket)]
        expect_same((len(won), [repr(found) for found in odd]), (1, []), "a ticket used four times concurrently")
        second = won[0]
        before = await dump(stores.state)
        with raises(StaleTicket, "a step with the previous ticket"):
            await stepper.step(agent, first)
        expect_same(await stepper.step(agent, first, retry=True), second, "the same step, retried")
        with raises(InvalidArgument, "a ticket of another agent"):
            await stepper.step(simple_agent(work, state={"done": []}, instructions="x"), _renamed(second))
        with raises(InvalidArgument, "not a ticket"):
            await stepper.step(agent, msgspec.to_builtins(second))
        expect_same(await dump(stores.state), before, "all data")
        ticket = second
        while not ticket.done:
            ticket = await stepper.step(agent, ticket)
        before = await dump(stores.state)
        expect_same(await stepper.step(agent, ticket), ticket, "a step with the last ticket")
        expect_same((await stepper.step(agent, second)).status, "completed", "a step of a run that has ended")
        expect_same(await dump(stores.state), before, "all data")
        await (await executor.execute(simple_agent(work, state={"done": []}), "More", session_id="s")).result()
        with raises(StaleTicket, "a ticket of an earlier turn"):
            await stepper.step(agent, second)


@check("X8", "a ticket of a turn that failed before its first step is rejected in the next turn")
async def ticket_of_failed_turn(harness: Harness) -> None:
    stores, clock, agent = await harness.open_stores(), Clockwork(), simple_agent(work, state={"done": []})
    lines: list[Line] = [ModelError("Overloaded."), [Call("work", {"n": 1})]]
    llm = ScriptedLLM([lines, "Done."])
    async with executing(stores, llm, clock=clock) as executor:
        old = await Stepper(executor).begin(agent, "Go", session_id="s")
        expect_same((await Stepper(executor).step(agent, old)).status, "failed", "the first turn")
        new = await Stepper(executor).begin(agent, "Again", session_id="s")
        expect_same((new.first_step, new.steps), (old.first_step, old.steps), "the steps before the second turn")
        before = await dump(stores.state)
        for retry in (False, True):
            with raises(StaleTicket, f"a ticket of the failed turn (retry={retry})"):
                await Stepper(executor).step(agent, old, retry=retry)
        expect_same(await dump(stores.state), before, "all data")
        await executor.interrupt("s")
        expect_same((await Stepper(executor).step(agent, new)).status, "interrupted", "a turn that was interrupted")
        await Stepper(executor).begin(agent, "Go on", session_id="s")
        goes_on = await Stepper(executor).step(agent, new)  # another run by now, of the same turn
        expect_same((goes_on.status, goes_on.steps), ("active", 1), "a ticket from before the turn was interrupted")


def _renamed(ticket: Ticket) -> Ticket:
    return msgspec.structs.replace(ticket, agent_type="somebody else")


@check("X8", "a step that is retried while another process works on it waits and gets the same ticket")
async def tried_again_meanwhile(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    started, done = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Work until the check releases it."""
        started.set()
        await done.wait()
        return "waited"

    agent, llm = simple_agent(wait), ScriptedLLM([[Call("wait")], "Done."])
    async with (
        executing(stores, llm, lease_seconds=5) as executor,
        executing(other, llm, lease_seconds=5) as elsewhere,
    ):
        first = await Stepper(executor).begin(agent, "Go", session_id="s")
        working = asyncio.create_task(Stepper(executor).step(agent, first))
        await started.wait()
        again = asyncio.create_task(Stepper(elsewhere).step(agent, first, retry=True))
        await asyncio.wait({again}, timeout=0.05)
        waits = not again.done()
        done.set()
        tickets = await asyncio.gather(working, again, return_exceptions=True)
    expect(waits and not isinstance(tickets[1], BaseException), f"the retry did not wait: {tickets}")
    expect_same(tickets[1], tickets[0], "the ticket")


# -- dying


def _stepping(tickets: dict[str, Ticket]) -> Act:
    """Step like an engine that stores its latest ticket and retries with it."""

    async def act(executor: AgentExecutor, session_id: str) -> None:
        stepper = Stepper(executor)
        if session_id not in tickets:
            tickets[session_id] = await stepper.begin(AGENT, INPUT, session_id=session_id, idempotency_key="play")
        while True:
            tickets[session_id] = await stepper.step(AGENT, tickets[session_id], retry=True)
            if tickets[session_id].done:
                return

    return act


async def _submitting(executor: AgentExecutor, session_id: str) -> None:
    store = executor.services.store
    session = await store.load_state(session_id)
    if session is None:
        await executor.submit(AGENT, INPUT, session_id=session_id)
    elif session.status.startswith("suspended"):
        await executor.submit(AGENT, [], session_id=session_id)
    for handle in await executor.recover():
        await handle.result()


@check("X8", "a stepped run that dies at any call ends with the same conversation, state and stream", kind="faults")
async def dead_while_stepping(harness: Harness) -> None:
    await _dead_at_any_call(harness, lambda: _stepping({}))


@check("X8", "a submitted run that dies at any call ends with the same conversation, state and stream", kind="faults")
async def dead_while_submitting(harness: Harness) -> None:
    await _dead_at_any_call(harness, lambda: _submitting)


async def _dead_at_any_call(harness: Harness, acting: Any) -> None:
    stores = await harness.open_stores()
    rng = random.Random(harness.options.seed)
    expected, _ = await perform(stores, "undisturbed", [])
    calm, _ = await perform(stores, "calm", [], act=acting())
    expect_same_remains(calm, expected, "no process dies")
    life = Life()
    await attempt(stores, "measured", life, Clockwork(), [], act=acting())
    await stores.state.delete_session("measured")
    for number in range(harness.options.steps // 50):
        lives = [
            Life(rng.randrange(1, life.calls), reply_lost=rng.random() < 0.5) for _ in range(rng.choice((1, 1, 2, 4)))
        ]
        plan = ", ".join(f"{one.last}{' (reply lost)' if one.reply_lost else ''}" for one in lives)
        actual, _ = await perform(stores, f"case {number}", lives, act=acting())
        expect_same_remains(actual, expected, f"dead at {plan} (seed {harness.options.seed})")


@check("X8", "if a process dies right after the commit of a step, its successor announces the step", kind="faults")
async def dead_between_steps(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent, life = _agent(), Life(commits=1)
    dying = make_executor(life.wrap(stores), _script())
    first = await Stepper(dying).begin(agent, "Go", session_id="s")
    with raises(Died, "a step that dies after its commit"):
        await Stepper(dying).step(agent, first)
    await life.bury()
    await dying.close()
    async with executing(stores, _script()) as executor:
        stepper = Stepper(executor)
        ticket = await stepper.step(agent, first, retry=True)
        expect_same([ticket.steps, ticket.done], [1, False], "the steps that the ticket counts")
        while not ticket.done:
            ticket = await stepper.step(agent, ticket)
    told = [chunk["step_count"] for chunk in of_type(await chunks_of(stores, "s"), "step_committed")]
    expect_same(told, list(range(1, ticket.steps + 1)), "the commits reported to readers")
