"""A Worker whose agents run by Workflows, with routes that only tests need. Tools write a journal into D1.

At any call to a database, a session may die: see `deaths.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import deaths  # type: ignore[import-not-found]  # beside this file in the Worker
import js
from scene_agents import SCRIPTS as SCENES  # type: ignore[import-not-found]
from scene_agents import scene_agents
from workers import DurableObject, Request, Response, WorkerEntrypoint

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, tool
from helix_agents.backends.cloudflare.bindings import D1Binding
from helix_agents.backends.cloudflare.wire import CloudflareDriver
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.cloudflare import (
    AgentWorkflow,
    CloudflareAgentExecutor,
    D1BlobStore,
    D1StateStore,
    D1UsageStore,
    DurableObjectStreamManager,
    StreamServer,
    run_migration,
    serve,
)
from helix_agents.codec import decode, encode
from helix_agents.conformance.executor.cast import ROOT_STATE, SCRIPT
from helix_agents.conformance.executor.harness import Parts, custom_state, family, transcript
from helix_agents.conformance.executor.play import answer_all, staged_calls
from helix_agents.errors import HelixError
from helix_agents.executor import Webhook
from helix_agents.llm.scripted import Call, Reply
from helix_agents.runtimes.cloudflare import workflows
from helix_agents.server.auth import User, bearer_tokens

__all__ = ["StreamServer"]
JOURNAL = "CREATE TABLE IF NOT EXISTS journal (id INTEGER PRIMARY KEY, session TEXT, line TEXT)"
ENDING = "CREATE TABLE IF NOT EXISTS ending (session TEXT PRIMARY KEY)"
SECRET = "a secret of the tests"
WEBHOOKS: list[Webhook] = []
WHO = bearer_tokens({"alice": User("alice"), "bob": User("bob")})
DYING = frozenset({"execute", "answer", "answer_all", "complete", "interrupt", "abort", "resume", "restore", "fork"})
DYING |= {"regenerate", "edit", "switch", "schedule"}
"""The requests that may die in the middle: those that change something."""
COSTS: dict[str, list[int]] = {}
_counted = CloudflareDriver.counted


def counted(self: Any, reply: Any) -> Any:
    """Count what the steps and requests of a session cost: requests to databases, and rows written."""
    found = COSTS.setdefault(deaths.COUNTED.get(), [0, 0])
    found[0] += 1
    found[1] += reply.rows_written
    return _counted(self, reply)


CloudflareDriver.counted = counted  # type: ignore[method-assign]


class Journal:
    """Records every execution of a tool, where it survives a kill."""

    def __init__(self, env: Any) -> None:
        self._database = D1Binding(env.DB)

    async def note(self, session: str, line: str) -> None:
        insert = "INSERT INTO journal (session, line) VALUES (?1, ?2)"
        with deaths.immortal():
            await self._database.batch([Statement(insert, (session.split("/")[0], line))])

    async def may_end(self, session: str) -> bool:
        """Return whether the waiting tools of a session may return."""
        find = "SELECT 1 AS one FROM ending WHERE session = ?1"
        with deaths.immortal():
            (rows,) = await self._database.batch([Statement(find, (session.split("/")[0],))])
        return bool(rows)

    async def lines(self, session: str) -> list[str]:
        (rows,) = await self._database.batch(
            [Statement("SELECT line FROM journal WHERE session = ?1 ORDER BY id", (session,))]
        )
        return [line for (line,) in rows]


@tool(requires_approval=True, deadline_seconds=2)
async def hurry(path: str) -> str:
    """Ask, and not for long."""
    return f"{path} done"


@tool(requires_approval=True)
async def erase(path: str) -> str:
    """Ask first."""
    return f"{path} is gone"


@tool
async def large(size: int, ctx: ToolContext) -> str:
    """Put more into the state than a row of D1 holds."""
    ctx.update_state(lambda draft: draft.update(text="x" * size))
    return "stored"


@tool
async def tick(n: int, ctx: ToolContext) -> str:
    """Count."""
    ctx.increment("count")
    return str(n)


def author(journal: Journal) -> Agent:
    """Return the agent of the kit's scenario, with a journal that survives a kill."""

    @tool
    async def note(text: str, ctx: ToolContext) -> str:
        """Write something down."""
        await journal.note(ctx.session_id, f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.update_state(lambda draft: draft["notes"].append({"text": text}))
        ctx.update_state(lambda draft: draft.increment("count"))
        ctx.emit("noted", text)
        return f"noted {text}"

    @tool
    async def plan(key: str, ctx: ToolContext) -> dict[str, Any]:
        """Plan something."""
        await journal.note(ctx.session_id, f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.update_state(lambda draft: draft["plan"].update({key: {"done": True}}))
        return {"planned": key}

    @tool(requires_approval=True)
    async def publish(title: str, ctx: ToolContext) -> str:
        """Publish something."""
        await journal.note(ctx.session_id, f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.update_state(lambda draft: draft["plan"].update(published=title))
        return f"published {title}"

    @tool(execute="client")
    def ask(question: str) -> str:
        """Ask a person."""
        raise NotImplementedError

    helper = Agent("helper", tools=[note, plan], state=ROOT_STATE)
    reviewer = Agent("reviewer", tools=[ask, note], state=ROOT_STATE)
    tools = [note, plan, publish, ask, helper.as_tool(), reviewer.as_tool()]
    return Agent("author", tools=tools, state=ROOT_STATE)


def agents(env: Any) -> list[Agent]:
    journal = Journal(env)

    @tool
    async def slow(seconds: float, ctx: ToolContext) -> str:
        """Take a while."""
        await journal.note(ctx.session_id, f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.increment("count")
        await asyncio.sleep(seconds)
        return "slept"

    async def take_back(arguments: dict[str, Any], result: Any, key: str) -> None:
        await journal.note("bought", f"undo {arguments['order']}")

    @tool(effect="once", key=lambda arguments: arguments["order"], undo=take_back)
    async def pay(order: str) -> str:
        """Pay."""
        await journal.note("bought", f"pay {order}")
        return "paid"

    return [
        Agent("buyer", tools=[pay, erase]),
        author(journal),
        Agent("hasty", tools=[hurry]),
        Agent("sleeper", tools=[slow], state={"count": 0}),
        Agent("hoarder", tools=[large], state={}),
        Agent("runner", tools=[tick], state={"count": 0}, max_steps=100),
        *scene_agents(journal.note, journal.may_end),
    ]


SCRIPTS: dict[str, Any] = {
    **SCRIPT,
    **SCENES,
    "hasty": [Reply("Quick?", [Call("hurry", {"path": "a"})]), "Nobody answered."],
    "sleeper": [Reply("Sleeping.", [Call("slow", {"seconds": 3})]), "Awake."],
    "hoarder": [Reply("Much.", [Call("large", {"size": 2_100_000})]), "Kept."],
    "buyer": [[Call("pay", {"order": "1"})], [Call("pay", {"order": "2"})], [Call("erase", {"path": "a"})], "Done."],
    "runner": [*[[Call("tick", {"n": n})] for n in range(12)], "Done."],
}


def new_executor(
    env: Any, workflow: str = "FLOWS", streams: str = "FLOW_STREAMS", database: str = "DB"
) -> CloudflareAgentExecutor:
    """Return an executor on the bindings of these names, of which some may be missing."""
    executor = CloudflareAgentExecutor(
        workflow_binding=getattr(env, workflow, None),
        state_store=D1StateStore(getattr(env, database, None), migrated=True),
        stream_manager=DurableObjectStreamManager(getattr(env, streams, None)),
        llm=ScriptedLLM(SCRIPTS),
        usage_store=D1UsageStore(env.DB, migrated=True),
        blob_store=D1BlobStore(env.DB, migrated=True),
        agents=agents(env),
        lease_seconds=3,
        steps_per_instance=250 if workflow == "LONG_FLOWS" else 5,
        secret=SECRET,
        webhooks=WEBHOOKS,
    )
    deaths.mortal(executor.runtime)
    return executor


class Flow(AgentWorkflow):
    def executor(self, env: Any) -> CloudflareAgentExecutor:
        return new_executor(env)


class LongFlow(AgentWorkflow):
    """One instance does all steps of a run."""

    def executor(self, env: Any) -> CloudflareAgentExecutor:
        return new_executor(env, "LONG_FLOWS")


class HastyFlow(AgentWorkflow):
    """The engine starts another attempt of a step while the first still runs."""

    step_config: ClassVar[Any] = {
        "retries": {"limit": 5, "delay": "200 ms", "backoff": "constant"},
        "timeout": "1 second",
    }

    def executor(self, env: Any) -> CloudflareAgentExecutor:
        return new_executor(env, "HASTY_FLOWS")


class Stranger(DurableObject):  # type: ignore[misc]
    """A Durable Object class that holds no streams."""


def json(value: Any, status: int = 200) -> Any:
    return Response(encode(value), status=status, headers={"content-type": "application/json"})


class Default(WorkerEntrypoint):  # type: ignore[misc]
    async def fetch(self, request: Any) -> Any:
        url = urlsplit(request.url)
        verb, *rest = [unquote(part) for part in url.path.split("/")[1:]]
        if verb == "door":  # /door/...: the routes for strangers and users
            inner = Request(js.Request.new(str(request.url).replace("/door", "", 1), request.js_object))
            return await serve(new_executor(self.env), inner, authenticate=WHO, max_streams_per_user=3)
        query = {name: texts[0] for name, texts in parse_qs(url.query).items()}
        body = decode(await request.text()) if request.method == "POST" else {}
        try:
            bound = {name: query.pop(name) for name in ("workflow", "streams", "database") if name in query}
            executor = new_executor(self.env, **bound)
            if verb in DYING:
                deaths.COUNTED.set(rest[0])
            return json(await getattr(self, f"do_{verb}")(executor, *rest, **query, **body))
        except HelixError as error:
            return json({"error": type(error).__name__, "detail": str(error)}, 400)

    async def do_migrate(self, executor: Any) -> Any:
        await D1Binding(self.env.DB).batch([Statement(JOURNAL), Statement(ENDING)])
        return await run_migration(self.env.DB)

    async def do_webhook(self, executor: Any, port: str) -> Any:
        """Let all runs report to this receiver from now on, or to none."""
        WEBHOOKS[:] = [Webhook(f"http://127.0.0.1:{port}/hook", SECRET)] if port != "0" else []

    async def do_heap(self, executor: Any) -> Any:
        return js.pythonHeapBytes()

    async def do_execute(self, executor: Any, session_id: str, agent: str, **options: Any) -> Any:
        said = options.pop("said", "Write the report.")
        handle = await executor.execute(agent, said, session_id=session_id, **options)
        return {"run_id": handle.run_id}

    async def do_begin(self, executor: Any, session_id: str, agent: str) -> Any:
        """Return as if the request died before it created an instance."""
        await executor.runtime._stepper.begin(agent, "Write the report.", session_id=session_id)

    async def do_answer_untold(self, executor: Any, session_id: str, tool_call_id: str, **answer: Any) -> Any:
        """Return as if the request died after it stored the answer and the run that continues, before it sent an
        event."""
        await AgentExecutor.submit_tool_result(executor, session_id, tool_call_id, **answer)
        state = await executor.services.store.load_state(session_id)
        await executor.runtime._stepper.begin(state.agent_type, [], session_id=session_id)

    async def do_result(self, executor: Any, session_id: str, **more: Any) -> Any:
        state = await executor.services.store.load_state(session_id)
        handle = await executor.get_handle(state.agent_type, session_id)
        result = await handle.result()
        waits = [{"id": each.tool_call_id, "tool": each.tool_name} for each in result.suspended]
        return {"status": result.status, "output": result.output, "error": result.error, "suspended": waits}

    async def do_answer_all(self, executor: Any, session_id: str) -> Any:
        await answer_all(executor, session_id)

    async def do_answer(self, executor: Any, session_id: str, tool_call_id: str, **answer: Any) -> Any:
        return {"receipt": (await executor.submit_tool_result(session_id, tool_call_id, **answer)).status}

    async def do_complete(self, executor: Any, session_id: str, token: str, **answer: Any) -> Any:
        return {"receipt": (await executor.complete_deferred(token, **answer)).status}

    async def do_interrupt(self, executor: Any, session_id: str, **more: Any) -> Any:
        await executor.interrupt(session_id, "enough", **more)

    async def do_abort(self, executor: Any, session_id: str) -> Any:
        await executor.abort(session_id, "enough")

    async def do_checkpoints(self, executor: Any, session_id: str) -> Any:
        found = await executor.services.store.list_checkpoints(session_id)
        return [{"id": each.checkpoint_id, "steps": each.step_count} for each in found.items]

    async def do_restore(self, executor: Any, session_id: str, checkpoint_id: str) -> Any:
        await executor.restore(session_id, checkpoint_id)

    async def do_fork(self, executor: Any, session_id: str, new_session_id: str, checkpoint_id: str) -> Any:
        await executor.fork_session(session_id, new_session_id, checkpoint_id=checkpoint_id)

    async def do_resume(self, executor: Any, session_id: str, agent: str, **more: Any) -> Any:
        return {"run_id": (await executor.resume(agent, session_id, **more)).run_id}

    async def do_regenerate(self, executor: Any, session_id: str, **more: Any) -> Any:
        return {"run_id": (await executor.regenerate(session_id, **more)).run_id}

    async def do_edit(self, executor: Any, session_id: str, message_id: str, content: str, **more: Any) -> Any:
        return {"run_id": (await executor.edit(session_id, message_id, content, **more)).run_id}

    async def do_branches(self, executor: Any, session_id: str) -> Any:
        """Return the id and the number of messages of each branch, and whether it is active."""
        found = await executor.list_branches(session_id)
        return [[each.branch_id, each.message_count, each.is_active] for each in found]

    async def do_switch(self, executor: Any, session_id: str, branch_id: str) -> Any:
        await executor.switch_branch(session_id, branch_id)

    async def do_messages(self, executor: Any, session_id: str) -> Any:
        found = await executor.services.store.load_conversation(session_id)
        return [[each["role"], each.get("id")] for each in found.messages]

    async def do_schedule(self, executor: Any, session_id: str, agent: str, seconds: str) -> Any:
        at = executor.services.clock() + int(float(seconds) * 1000)
        await executor.schedule(agent, "Write the report.", at=at, session_id=session_id, key=session_id)

    async def do_terminate(self, executor: Any, session_id: str) -> Any:
        """Let the engine end the instance of the latest run for good."""
        run = (await executor.services.store.list_runs(session_id))[-1]
        await (await self.env.FLOWS.get(workflows.instance_name(run.run_id))).terminate()

    async def do_send_to_finished(self, executor: Any, session_id: str) -> Any:
        """Send an answer to the instance of a run that has ended; return whether the instance accepted it."""
        state = await executor.services.store.load_state(session_id)
        ticket = await executor.runtime._stepper.look(state.agent_type, session_id)
        return await executor.runtime._send(workflows.instance_name(ticket.run_id), workflows.ANSWER, ticket)

    async def do_parts(self, executor: Any, session_id: str) -> Any:
        """Return the statuses of the successive instances of the latest run."""
        run = (await executor.services.store.list_runs(session_id))[-1]
        return [await executor.runtime._status(workflows.instance_name(run.run_id, part)) for part in range(4)]

    async def do_delete(self, executor: Any, session_id: str) -> Any:
        return await executor.delete_session(session_id)

    async def do_rescue(self, executor: Any) -> Any:
        await executor.recover()

    async def do_end(self, executor: Any, session_id: str) -> Any:
        """Let the tools of a session that wait return."""
        insert = "INSERT INTO ending VALUES (?1) ON CONFLICT DO NOTHING"
        await D1Binding(self.env.DB).batch([Statement(insert, (session_id,))])

    async def do_die(self, executor: Any, session_id: str, at: str) -> Any:
        """Let the session die at this point, see `deaths.py`."""
        deaths.LAST[session_id] = int(at)

    async def do_points(self, executor: Any, session_id: str) -> Any:
        return {"points": deaths.POINTS.get(session_id, 0), "dead": deaths.has_died(session_id)}

    async def do_journal(self, executor: Any, session_id: str) -> Any:
        return await Journal(self.env).lines(session_id)

    async def do_state(self, executor: Any, session_id: str) -> Any:
        state = await executor.services.store.load_state(session_id)
        if state is None:
            return None
        runs = await executor.services.store.list_runs(session_id)
        return {"status": state.status, "steps": state.step_count, "runs": [run.status for run in runs]}

    async def do_instances(self, executor: Any, session_id: str) -> Any:
        """Return the statuses of the instances of all runs of a session."""
        runs = await executor.services.store.list_runs(session_id)
        names = {run.run_id: workflows.instance_name(run.run_id) for run in runs}
        return {run_id: await executor.runtime._status(name) for run_id, name in names.items()}

    async def do_instance(self, executor: Any, run_id: str) -> Any:
        """Return the status of the instance of one run, also if its session is gone."""
        return await executor.runtime._status(workflows.instance_name(run_id))

    async def do_create_again(self, executor: Any, session_id: str) -> Any:
        """Create an instance that exists already."""
        state = await executor.services.store.load_state(session_id)
        ticket = await executor.runtime._stepper.look(state.agent_type, session_id)
        await executor.runtime._create(workflows.instance_name(ticket.run_id), ticket)

    async def do_chunks(self, executor: Any, session_id: str) -> Any:
        stored = await executor.services.streams.get_all_chunks(session_id)
        return [{"sequence": each.sequence, "chunk": each.chunk} for each in stored]

    async def do_remains(self, executor: Any, session_id: str) -> Any:
        """Return transcripts and states of a session and its sub-agents, and what must not be left."""
        services = executor.services
        stores = Parts(services.store, services.streams, services.usage)
        members = await family(stores, session_id)
        runs = [run for member in members for run in await stores.state.list_runs(member)]
        return {
            "transcripts": {member: await transcript(stores, member) for member in members},
            "states": {member: await custom_state(stores, member) for member in members},
            "open_runs": [run.run_id for run in runs if run.status == "running"],
        }

    async def do_staged(self, executor: Any, session_id: str) -> Any:
        """Return finished calls, as the journal names them."""
        services = executor.services
        return sorted(await staged_calls(Parts(services.store, services.streams, services.usage), session_id))

    async def do_plain(self, executor: Any, session_id: str, agent: str) -> Any:
        """Run an agent in this request, without Workflows, on the same stores."""
        services = executor.services
        deaths.COUNTED.set(session_id)
        async with AgentExecutor(
            services.store, services.streams, services.llm, usage_store=services.usage, agents=list(executor.agents)
        ) as plain:
            await plain.run(agent, "Write the report.", session_id=session_id)

    async def do_costs(self, executor: Any, session_id: str) -> Any:
        requests, rows = COSTS[session_id]
        return {"requests": requests, "rows": rows}
