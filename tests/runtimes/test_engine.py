"""What every engine does: runs of several agents, responses, interrupts, bad input, and what it must not store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from dbos import DBOS, DBOSConfig
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, Stores, ToolContext, open_stores, tool
from helix_agents.errors import NotResumable
from helix_agents.executor import RunHandle, Stepper, Ticket
from helix_agents.llm.scripted import Call
from helix_agents.runtimes.dbos import DBOSRuntime, helix_run
from helix_agents.runtimes.engine import EngineRuntime, plain
from helix_agents.runtimes.temporal import HelixRun, TemporalRuntime
from tests.servers.temporal import TemporalServer

STEPS = 3
LIMIT_SECONDS = 60
LEASE_SECONDS = 4  # a busy machine stalls for a second now and then; a run must not count as dead then
SECRET = "A word that only the conversation may hold"

Opener = Callable[[AgentExecutor], AbstractAsyncContextManager[EngineRuntime]]


@tool
async def work(n: int, ctx: ToolContext) -> str:
    """Work."""
    ctx.update_state(lambda draft: draft["done"].append(n))
    return f"{SECRET}: did {n}"


@tool(requires_approval=True)
async def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


worker = Agent("worker", tools=[work], state={"done": []})
editor = Agent("editor", tools=[publish])


def model() -> ScriptedLLM:
    return ScriptedLLM(
        {
            "worker": [*([Call("work", {"n": n})] for n in range(STEPS)), f"Done. {SECRET}", "Again."],
            "editor": [[Call("publish", {"title": "one"}), Call("publish", {"title": "two"})], "Published."],
        }
    )


@asynccontextmanager
async def executing(stores: Stores, *agents: Agent) -> AsyncIterator[AgentExecutor]:
    async with AgentExecutor(stores, model(), agents=agents, lease_seconds=LEASE_SECONDS) as executor:
        yield executor


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(f"sqlite:{tmp_path / 'agents.db'}") as opened:
        yield opened


def dbos_config(folder: Path, executor_id: str = "first") -> DBOSConfig:
    config: DBOSConfig = {"name": "tests", "system_database_url": f"sqlite:///{folder / 'dbos.db'}"}
    config.update({"executor_id": executor_id, "console_log_level": "CRITICAL"})
    return config


@pytest.fixture
async def temporal_client(temporal_server: TemporalServer) -> Client:
    return await Client.connect(temporal_server.address)


@pytest.fixture(params=["dbos", "temporal"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Makes a runtime of each kind."""
    if request.param == "dbos":
        return lambda executor: DBOSRuntime(executor, dbos_config(tmp_path))
    address = request.getfixturevalue("temporal_server").address

    @asynccontextmanager
    async def temporal(executor: AgentExecutor) -> AsyncIterator[EngineRuntime]:
        async with TemporalRuntime(executor, await Client.connect(address), task_queue=str(tmp_path)) as runtime:
            yield runtime

    return temporal


async def at_rest(stores: Stores, session_id: str, status: str) -> None:
    """Wait for a status: the engine's side has no event to wait for."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            state = await stores.state.load_state(session_id)
            run = await stores.state.get_current_run(session_id)
            # The record of a run that was interrupted while unowned stays open until the next run.
            ended = status == "interrupted" or (run is not None and run.status != "running")
            if state is not None and state.status == status and ended:
                return
            await asyncio.sleep(0.02)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not true():  # noqa: ASYNC110  # the engine's threads have no event for us
            await asyncio.sleep(0.02)


async def expect_plain_run(stores: Stores, session_id: str) -> None:
    """Check that there is one record, one start, and every step once."""
    state = await stores.state.load_state(session_id)
    assert state is not None
    assert (state.status, state.custom_state) == ("completed", {"done": [0, 1, 2]})
    (run,) = await stores.state.list_runs(session_id)
    assert (run.status, run.step_count) == ("completed", STEPS + 1)
    roles = [message["role"] for message in (await stores.state.get_messages(session_id)).items]
    assert roles == ["user", *["assistant", "tool"] * STEPS, "assistant"]
    told = [stored.chunk["type"] for stored in await stores.streams.get_all_chunks(session_id)]
    assert (told.count("run_started"), told.count("run_resumed"), told.count("stream_rewound")) == (1, 0, 0)


async def result(stores: Stores, handle: RunHandle) -> object:
    output = (await asyncio.wait_for(handle.result(), LIMIT_SECONDS)).output
    await at_rest(stores, handle.session_id, "completed")  # the record is closed a moment after the session
    return output


async def test_runs_of_several_agents_and_turns(opened: Opener, stores: Stores) -> None:
    async with executing(stores, worker, editor) as executor, opened(executor) as runtime:
        handles = [await runtime.submit(worker, SECRET, session_id=f"w{n}") for n in range(3)]
        other = await runtime.submit("editor", "Go", session_id="e")
        for handle in handles:
            assert await result(stores, handle) == f"Done. {SECRET}"
            await expect_plain_run(stores, handle.session_id)
        chunks = [chunk["type"] async for chunk in handles[0].stream()]
        assert (chunks[0], chunks[-1]) == ("run_started", "output")
        suspended = await asyncio.wait_for(other.result(), LIMIT_SECONDS)
        first, second = [wait.tool_call_id for wait in suspended.suspended]
        assert (await runtime.answer("e", first, approved=True)).status == "accepted"
        assert (await runtime.answer("e", second, approved=False, reason="No.")).status == "accepted"
        assert (await runtime.answer("e", second, approved=True)).status in ("duplicate", "late")
        await at_rest(stores, "e", "completed")
        said = [message["content"] for message in (await stores.state.get_messages("e")).items]
        assert said == ["Go", "", "published one", "Error: A person refused this call: No.", "Published."]
        again = await runtime.submit(worker, "More", session_id="w0")
        assert await result(stores, again) == "Again."
        assert [run.status for run in await stores.state.list_runs("w0")] == ["completed", "completed"]


async def test_the_same_request_submitted_twice_is_one_run(opened: Opener, stores: Stores) -> None:
    async with executing(stores, worker) as executor, opened(executor) as runtime:
        submits = (runtime.submit(worker, "Go", idempotency_key="k") for _ in range(3))
        handles = await asyncio.gather(*submits)
        assert len({(handle.session_id, handle.run_id) for handle in handles}) == 1
        await result(stores, handles[0])
        again = await runtime.submit(worker, "Go", idempotency_key="k")
        assert again.run_id == handles[0].run_id
        await expect_plain_run(stores, again.session_id)
        await result(stores, await runtime.submit(worker, "More", session_id=again.session_id))
        late = await runtime.submit(worker, "Go", session_id=again.session_id, idempotency_key="k")
        assert late.run_id == handles[0].run_id
        assert (await late.result()).output == f"Done. {SECRET}"


async def test_a_run_that_was_stored_when_its_process_died_is_found(opened: Opener, stores: Stores) -> None:
    async with executing(stores, worker) as executor, opened(executor) as runtime:
        await Stepper(executor, engine=runtime._engine).begin(worker, "Go", session_id="left")
        await at_rest(stores, "left", "completed")
        await expect_plain_run(stores, "left")


async def test_an_interrupted_run_is_taken_up_by_the_engine_when_asked(opened: Opener, stores: Stores) -> None:
    async with executing(stores, editor) as executor, opened(executor) as runtime:
        handle = await runtime.submit(editor, "Go", session_id="s")
        await handle.result()
        with pytest.raises(NotResumable):
            await runtime.resume(editor, "s")
        await executor.interrupt("s")
        await at_rest(stores, "s", "interrupted")
        again = await runtime.resume(editor, "s")
        for wait in (await asyncio.wait_for(again.result(), LIMIT_SECONDS)).suspended:
            await runtime.answer("s", wait.tool_call_id, approved=True)
        done = await executor.get_handle(editor, "s")
        assert done is not None
        assert await result(stores, done) == "Published."


async def test_a_restored_session_is_resumed_by_the_engine(opened: Opener, stores: Stores) -> None:
    async with executing(stores, worker) as executor, opened(executor) as runtime:
        await result(stores, await runtime.submit(worker, "Go", session_id="s"))
        before = [message["content"] for message in (await stores.state.get_messages("s")).items]
        first = next(each for each in (await stores.state.list_checkpoints("s")).items if each.step_count == 1)
        await executor.restore("s", first.checkpoint_id)
        assert await result(stores, await runtime.resume(worker, "s")) == f"Done. {SECRET}"
        assert [message["content"] for message in (await stores.state.get_messages("s")).items] == before


async def test_what_belongs_to_another_agent_is_refused(opened: Opener, stores: Stores) -> None:
    async with executing(stores, worker, editor) as executor, opened(executor) as runtime:
        await result(stores, await runtime.submit(worker, "Go", session_id="s"))
        with pytest.raises(InvalidArgument):
            await runtime.submit(editor, "Go", session_id="s")
        with pytest.raises(InvalidArgument):
            await runtime.resume(editor, "s")
        with pytest.raises(InvalidArgument):
            await runtime.submit("nobody", "Go")


async def old_tickets(executor: AgentExecutor) -> tuple[Ticket, Ticket]:
    """Return a ticket of a run that has only started, and one of a turn that has ended."""
    stepper = Stepper(executor, engine="by hand")
    fresh = await stepper.begin(worker, "Go", session_id="fresh")
    stale = await stepper.begin(worker, "Go", session_id="stale")
    for _ in range(STEPS + 1):
        await stepper.step(worker, await stepper.look(worker, "stale"))
    await executor.run(worker, "More", session_id="stale")
    return fresh, stale


async def test_dbos_with_a_ticket_used_twice_at_once_and_an_old_one(stores: Stores, tmp_path: Path) -> None:
    async with executing(stores, worker) as executor, DBOSRuntime(executor, dbos_config(tmp_path)):
        fresh, stale = await old_tickets(executor)
        workflows = [await DBOS.start_workflow_async(helix_run, plain(fresh)) for _ in range(3)]
        ends = [await asyncio.wait_for(each.get_result(), LIMIT_SECONDS) for each in workflows]
        assert [end["status"] for end in ends] == ["completed"] * 3
        await expect_plain_run(stores, "fresh")
        before = await stores.state.load_state("stale")
        refused = await DBOS.start_workflow_async(helix_run, plain(stale))
        with pytest.raises(Exception, match="its turn is over"):
            await asyncio.wait_for(refused.get_result(), LIMIT_SECONDS)
        assert await stores.state.load_state("stale") == before


async def test_temporal_with_a_ticket_used_twice_at_once_and_an_old_one(
    stores: Stores, temporal_client: Client, tmp_path: Path
) -> None:
    async with executing(stores, worker) as executor:
        async with TemporalRuntime(executor, temporal_client, task_queue=str(tmp_path)):
            fresh, stale = await old_tickets(executor)

            async def workflow(name: str, ticket: Ticket) -> dict:
                arguments = [plain(ticket), 1.0, 60.0]
                handle = await temporal_client.start_workflow(
                    HelixRun.run, args=arguments, id=f"{tmp_path}-{name}", task_queue=str(tmp_path)
                )
                return await asyncio.wait_for(handle.result(), LIMIT_SECONDS)

            ends = await asyncio.gather(*(workflow(str(n), fresh) for n in range(3)))
            assert [end["status"] for end in ends] == ["completed"] * 3
            await expect_plain_run(stores, "fresh")
            before = await stores.state.load_state("stale")
            with pytest.raises(WorkflowFailureError):
                await workflow("stale", stale)
            assert await stores.state.load_state("stale") == before


async def test_dbos_leaves_a_run_to_a_process_that_knows_its_agent(
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with executing(stores, editor) as stranger:
        front = AgentExecutor(stores, model(), agents=[worker])
        tickets = [await Stepper(front, engine="dbos").begin(worker, "Go", session_id=f"s{n}") for n in range(2)]
        async with DBOSRuntime(stranger, dbos_config(tmp_path, "stranger")) as runtime:
            for ticket in tickets:
                await runtime._begin(ticket, anew=True)
            await until(lambda: "sends runs of agent worker, which" in caplog.text and not runtime._at_work)
            assert {each.status for each in await DBOS.list_workflows_async()} == {"PENDING"}
    assert caplog.text.count("sends runs of agent worker, which") == 1
    async with executing(stores, worker) as executor, DBOSRuntime(executor, dbos_config(tmp_path, "other")):
        for ticket in tickets:
            await at_rest(stores, ticket.session_id, "completed")
            await expect_plain_run(stores, ticket.session_id)


async def test_temporal_leaves_a_run_to_a_process_that_knows_its_agent(
    stores: Stores,
    temporal_server: TemporalServer,
    temporal_client: Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with executing(stores, editor) as stranger, executing(stores, worker) as executor:
        own_client = await Client.connect(temporal_server.address)
        knowing = TemporalRuntime(executor, own_client, task_queue=str(tmp_path))
        async with TemporalRuntime(stranger, temporal_client, task_queue=str(tmp_path)):
            handle = await knowing.submit(worker, "Go", session_id="s")
            await until(lambda: "sends runs of agent worker, which" in caplog.text)
            async with knowing:
                await result(stores, handle)
        await expect_plain_run(stores, "s")
    assert caplog.text.count("sends runs of agent worker, which") == 1


async def test_the_tables_of_dbos_hold_nothing_of_the_conversation(stores: Stores, tmp_path: Path) -> None:
    async with executing(stores, worker) as executor, DBOSRuntime(executor, dbos_config(tmp_path)) as runtime:
        await result(stores, await runtime.submit(worker, SECRET, session_id="s"))
        (begun,) = await DBOS.list_workflows_async()
        # DBOS writes the end down after the session did.
        await asyncio.wait_for((await DBOS.retrieve_workflow_async(begun.workflow_id)).get_result(), LIMIT_SECONDS)
        (kept,) = await DBOS.list_workflows_async()
        steps = await DBOS.list_workflow_steps_async(kept.workflow_id)
        assert [step["function_name"] for step in steps] == ["helix_step"] * (STEPS + 1)
        assert "'session_id': 's'" in repr([kept.input, steps])
        assert SECRET not in repr([kept.input, kept.output, steps])


async def test_the_history_of_temporal_holds_nothing_of_the_conversation_and_begins_anew(
    stores: Stores, temporal_client: Client, tmp_path: Path
) -> None:
    async with executing(stores, worker) as executor:
        async with TemporalRuntime(executor, temporal_client, task_queue=str(tmp_path)) as runtime:
            await result(stores, await runtime.submit(worker, SECRET, session_id="s"))
            found: list[WorkflowExecution] = []
            ended = {WorkflowExecutionStatus.CONTINUED_AS_NEW, WorkflowExecutionStatus.COMPLETED}
            async with asyncio.timeout(LIMIT_SECONDS):
                # The worker reports the end after the session, and the list lags behind the worker.
                while {each.status for each in found} != ended:
                    found = [each async for each in temporal_client.list_workflows(f"WorkflowId = '{tmp_path}/s'")]
        await expect_plain_run(stores, "s")
        for each in found:
            handle = temporal_client.get_workflow_handle(each.id, run_id=each.run_id)
            history = (await handle.fetch_history()).to_json()
            assert "helix_step" in history
            assert SECRET not in history


async def test_a_workflow_that_was_terminated_leaves_an_interrupted_session(
    stores: Stores, temporal_client: Client, tmp_path: Path
) -> None:
    async with executing(stores, worker) as executor:
        runtime = TemporalRuntime(executor, temporal_client, task_queue=str(tmp_path))
        await runtime.submit(worker, "Go", session_id="s")  # no worker runs yet
        await temporal_client.get_workflow_handle(f"{tmp_path}/s").terminate("enough")
        async with runtime:
            await at_rest(stores, "s", "interrupted")
            assert await result(stores, await runtime.resume(worker, "s")) == f"Done. {SECRET}"


async def test_a_workflow_that_was_cancelled_leaves_an_interrupted_session(stores: Stores, tmp_path: Path) -> None:
    async with executing(stores, editor) as stranger:
        front = AgentExecutor(stores, model(), agents=[worker])
        ticket = await Stepper(front, engine="dbos").begin(worker, "Go", session_id="s")
        async with DBOSRuntime(stranger, dbos_config(tmp_path, "stranger")) as runtime:
            await runtime._begin(ticket, anew=True)
            await DBOS.cancel_workflow_async("helix:{s}:1")
    async with executing(stores, worker) as executor:
        async with DBOSRuntime(executor, dbos_config(tmp_path, "other")) as runtime:
            await at_rest(stores, "s", "interrupted")
            assert await result(stores, await runtime.resume(worker, "s")) == f"Done. {SECRET}"


async def test_leaving_finishes_the_step_and_hands_the_rest_over(opened: Opener, stores: Stores) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def slow(n: int) -> str:
        """Take your time."""
        began.set()
        await go_on.wait()
        return f"did {n}"

    agent = Agent("slow", tools=[slow])
    script = ScriptedLLM({"slow": [[Call("slow", {"n": 1})], [Call("slow", {"n": 2})], "Done."]})
    async with AgentExecutor(stores, script, agents=[agent], lease_seconds=LEASE_SECONDS) as executor:
        async with opened(executor) as runtime:
            handle = await runtime.submit(agent, "Go", session_id="s")
            await asyncio.wait_for(began.wait(), LIMIT_SECONDS)
            asyncio.get_running_loop().call_later(0.1, go_on.set)
        state = await stores.state.load_state("s")
        assert state is not None
        assert state.step_count >= 1
        async with opened(executor):
            await result(stores, handle)
        (run,) = await stores.state.list_runs("s")
        assert (run.status, run.step_count) == ("completed", 3)


async def test_there_is_one_dbos_runtime_in_a_process(stores: Stores, tmp_path: Path) -> None:
    async with executing(stores, worker) as executor:
        async with DBOSRuntime(executor, dbos_config(tmp_path)):
            with pytest.raises(InvalidArgument, match="already"):
                await DBOSRuntime(executor, dbos_config(tmp_path)).__aenter__()


@pytest.mark.parametrize(("module", "library"), [("dbos", "dbos"), ("temporal", "temporalio")])
def test_a_missing_library_names_the_extra(module: str, library: str) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; import helix_agents.runtimes.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"pip install 'helix-agents[{module}]'" in done.stderr
