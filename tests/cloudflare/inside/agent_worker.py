"""A Worker as a user would write it, with a scripted model; and a few routes that only tests need."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import js
from costs import costs  # type: ignore[import-not-found]  # beside this file in the Worker
from msgspec.structs import replace
from workers import Request, Response, WorkerEntrypoint

from helix_agents import Agent, ScriptedLLM, ToolContext, tool
from helix_agents.clock import system_clock
from helix_agents.codec import encode
from helix_agents.errors import InvalidArgument, ModelError, SessionExists
from helix_agents.executor import Webhook
from helix_agents.llm.scripted import Call, Reply
from helix_agents.runtimes.cloudflare import AgentServer, route
from helix_agents.server.auth import User, bearer_tokens


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Note something."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    await asyncio.sleep(0.01)
    return "noted"


@tool
def shout(text: str) -> str:
    """Return a plain function: there are no threads here."""
    return text.upper()


@tool(requires_approval=True)
async def erase(path: str) -> str:
    """Ask first."""
    return f"{path} is gone"


@tool
async def large(size: int) -> str:
    """Return much."""
    return "x" * size


@tool
async def render(ctx: ToolContext) -> str:
    """Start a job elsewhere, which sends its result to a URL."""
    call = await ctx.defer(deadline_seconds=3600)
    JOBS.append([call.url, ctx.deps])
    return "does not count"


author = Agent("author", tools=[note, shout], state={"notes": []}, max_steps=50)
marathon = Agent("marathon", tools=[note, shout], state={"notes": []}, max_steps=50)
asker = Agent("asker", tools=[erase])
breaker = Agent("breaker")
hoarder = Agent("hoarder", tools=[large])
deferrer = Agent("deferrer", tools=[render])
SECRET = "a secret of the tests"
TWO_TOOLS = Reply("I will note two things.", [Call("note", {"text": "a"}), Call("note", {"text": "b"})])
SCRIPT: list[Any] = [
    Reply("I will note two things. " * 3, [Call("note", {"text": "a"}), Call("note", {"text": "b"})]),
    Reply("And a third. ", [Call("note", {"text": "c"}), Call("shout", {"text": "hey"})]),
    "Done, three notes.",
]
MARATHON: list[Any] = [TWO_TOOLS, "Done.", *[TWO_TOOLS] * 10, "Done."]  # a turn of two steps, then one of eleven


WHO = bearer_tokens({"alice": User("alice"), "bob": User("bob"), "root": User("root", is_admin=True)})
JOBS: list[Any] = []
"""The jobs that tools have started elsewhere: the URL for the result, and the deps of the run."""
LIVES: list[str] = []
"""The objects that this isolate has made, by name."""


class Agents(AgentServer):
    agents = (author, marathon, asker, breaker, hoarder, deferrer)
    max_streams_per_user = 40
    session_ttl_seconds = None

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.born = os.urandom(3).hex()
        LIVES.append(str(getattr(self.ctx.id, "name", "")))

    def model(self, env: Any) -> Any:
        asking: list[Any] = [Reply("May I?", [Call("erase", {"path": "a.txt"})]), "Erased."]
        breaking: list[Any] = [ModelError("the model is out")]
        scripts = {"author": SCRIPT, "marathon": MARATHON, "asker": asking, "breaker": breaking}
        scripts["hoarder"] = [[Call("large", {"size": 2_100_000})], "Kept."]
        scripts["deferrer"] = [[Call("render")], "Rendered."]
        return ScriptedLLM(scripts, delay_seconds=0.01)

    def authenticate(self, env: Any) -> Any:
        return WHO

    def executor_options(self, env: Any) -> dict[str, Any]:
        return {"secret": SECRET, "public_url": "https://agents.example", "deps_factory": lambda session: "given"}

    async def fetch(self, request: Any) -> Any:
        path = [unquote(part) for part in urlsplit(request.url).path.split("/")]
        if path[1] == "test":
            return await self.test(path[2], path[3], request)
        return await super().fetch(request)

    async def test(self, verb: str, session_id: str, request: Any) -> Any:
        query = {name: int(texts[0]) for name, texts in parse_qs(urlsplit(request.url).query).items()}
        count, began = query.get("n", 0), time.time()
        if verb == "create":
            with suppress(SessionExists):
                await self.state.create_session(session_id, agent_type="author", user_id="alice")
        if verb == "begin":  # as a method of the class that another Worker calls, not by a route
            await self.executor.execute("author", "go", session_id=session_id, user_id="alice")
        if verb == "webhook":  # a receiver on this machine
            self.executor.add_webhooks(Webhook(f"http://127.0.0.1:{query['port']}/hook", SECRET))
        if verb == "plan":
            at = system_clock() + query["in"] * 1000
            await self.executor.schedule("author", "go", at=at, session_id=session_id, user_id="alice")
        if verb == "again":
            await self.streams.reset_stream(session_id)
        if verb == "pour":
            self.streams.max_chunks = query.get("keep", self.max_chunks)
            writer = await self.streams.create_writer(session_id, "run", "author")
            for number in range(count):
                await writer.write({"type": "text_delta", "delta": f"{number} ".ljust(query.get("size", 0))})
                if query.get("each"):
                    await writer.flush()
                if query.get("each") or query.get("paced"):
                    await asyncio.sleep(0.02)
            await writer.close()
        if verb == "refusals":
            return await self.refusals(session_id)
        if verb == "costs":
            found = await costs(self.state, self.streams, lambda: self.storage.rows_written)
            return Response(encode(found), headers={"content-type": "application/json"})
        if verb == "end":
            await self.streams.end_stream(session_id, "done")
        if verb == "expire":
            session = await self.state.load_state(session_id)
            assert session is not None
            await self.state.save_state(session_id, replace(session, expires_at=system_clock() + query["in"] * 1000))
            await self.ctx.storage.deleteAlarm()
            await self._schedule()
        if verb == "ttl":
            self.session_ttl_seconds = query["seconds"]
            await self.ctx.storage.deleteAlarm()  # as the runtime does before it calls
            await self.alarm()
        alarm = await self.ctx.storage.getAlarm()
        facts = {"born": self.born, "written": self.storage.rows_written, "alarm": alarm or None}
        facts |= {"seconds": time.time() - began, "empty": self.storage.is_empty(), "size": self.storage.size_bytes}
        return Response(encode(facts), headers={"content-type": "application/json"})

    async def refusals(self, session_id: str) -> Any:
        """Return what becomes of values that Cloudflare cannot hold."""
        large = {"role": "user", "content": "a" * 2_100_000}
        attempts: dict[str, Any] = {
            "message": lambda: self.state.append_messages(session_id, [large]),
            "state": lambda: self.state.create_session(
                "other", agent_type="a", custom_state={"large": "a" * 2_100_000}
            ),
            "integer": lambda: self.state.create_session("other", agent_type="a", expires_at=2**53),
        }
        told: dict[str, Any] = {}
        for name, attempt in attempts.items():
            try:
                await attempt()
            except Exception as error:
                told[name] = f"{type(error).__name__}: {error}"
        told["kept"] = [await self.state.get_message_count(session_id), await self.state.session_exists("other")]
        return Response(encode(told), headers={"content-type": "application/json"})


class NotedNamespace:
    """A namespace that notes what it is asked for."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        self.asked: list[Any] = []

    def getByName(self, name: str, **options: Any) -> Any:  # the runtime's name
        self.asked.append([name, options])
        return self._namespace.getByName(name, **options)


class Default(WorkerEntrypoint):  # type: ignore[misc]
    async def fetch(self, request: Any) -> Any:
        path = urlsplit(request.url).path.split("/")
        if path[1] == "isolate":
            facts = {"objects": len(LIVES), "heap": js.pythonHeapBytes(), "jobs": JOBS}
            return Response(encode(facts), headers={"content-type": "application/json"})
        if path[1] == "unguarded":  # as if route had no `authenticate`: the object is the only guard
            inner = str(request.url).replace("/unguarded", "", 1)
            again = Request(
                inner, method=request.method, headers=dict(request.headers.items()), body=await request.text()
            )
            return await route(self.env.OBJECTS, again)
        if path[1] == "hinted":  # /hinted/{hint}/...
            noted = NotedNamespace(self.env.OBJECTS)
            inner = str(request.url).replace(f"/hinted/{path[2]}", "", 1)
            again = Request(inner, headers=dict(request.headers.items()))
            reply = await route(noted, again, authenticate=WHO, location_hint=path[2] or None)
            return Response(encode({"asked": noted.asked, "status": reply.status}))
        if path[1] == "unbound":  # as if wrangler.jsonc lacked the namespace
            try:
                return await route(getattr(self.env, "MISSING", None), request, authenticate=WHO)
            except InvalidArgument as error:
                return Response(encode({"error": str(error)}))
        if path[1] == "test":
            return await self.env.OBJECTS.getByName(unquote(path[3])).fetch(request.js_object)
        return await route(self.env.OBJECTS, request, authenticate=WHO, secret=SECRET)
