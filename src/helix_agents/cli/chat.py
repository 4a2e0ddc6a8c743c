"""`helix chat`: talk to an agent in the terminal. Replies stream, questions are asked here, sessions can be continued.

The main thread reads the terminal, because Ctrl-C arrives there; runs and stores live in the event loop of another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from ..agent import Agent
from ..backends.registry import Stores, open_stores
from ..clock import random_id
from ..codec import Json
from ..demo.served import assistant, demo_executor
from ..errors import AlreadyRunning, HelixError, InvalidArgument
from ..executor import AgentExecutor, Intent, RunHandle, Standing, all_waiting, decide
from ..executor import find as find_session
from ..retry import RESULT
from ..types import PendingClientToolCall, SessionState
from .command import add_url, address, ensure_shared
from .loop_thread import LoopThread
from .output import complain, say
from .targets import executor_named, executors_beside, find
from .transcript import Transcript, in_full

MODEL_VARIABLE = "HELIX_MODEL"
SHOWN_MESSAGES = 6
TARGET = "module:name of an Agent, of an AgentExecutor, or of a function of stores that returns one (default: a demo)"


def add_chat(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "chat",
        help="talk to an agent in the terminal",
        description="Talk to an agent in the terminal. Ctrl-C stops a reply, Ctrl-D ends the chat.",
        epilog="The session is stored: continue it with --session, also after a crash.",
    )
    parser.add_argument("target", nargs="?", metavar="agent", help=TARGET)
    parser.add_argument("--session", metavar="ID", help="the session to continue, or the id of a new one")
    parser.add_argument("--name", help="which agent, if the executor has several")
    parser.add_argument("--model", help=f"provider:model, for an agent without one (default: {MODEL_VARIABLE})")
    add_url(parser)
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    with LoopThread() as loop:
        chat = loop.run(Chat.open(given))
        try:
            Terminal(chat, loop, " ".join(["helix chat", *filter(None, [given.target])])).talk()
        finally:
            loop.run(chat.close())
    return 0


class Chat:
    """One session and what it takes to continue it. Its methods run in the event loop."""

    def __init__(self, executor: AgentExecutor, agent: Agent, session_id: str, resources: AsyncExitStack) -> None:
        self.executor = executor
        self.agent = agent
        self.session_id = session_id
        self._resources = resources

    @classmethod
    async def open(cls, given: argparse.Namespace) -> Chat:
        """Open the executor that the command line names."""
        async with AsyncExitStack() as resources:
            executor, agent = await _opened(given, resources)
            return cls(executor, agent, given.session or f"chat-{random_id()[:12]}", resources.pop_all())
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close what was opened; a run that is at work is handed over."""
        await self._resources.aclose()

    async def is_running_elsewhere(self) -> bool:
        """Check whether a process has the session. One that died has it until its lease expires."""
        return (await find_session(self.executor.services, self.session_id)).seen.standing is Standing.RUNNING

    async def wait_for_others(self) -> None:
        """Wait until no other process has the session."""
        while await self.is_running_elsewhere():  # noqa: ASYNC110  # another process
            await asyncio.sleep(RESULT.first_seconds)

    async def history(self) -> list[Any]:
        """Return the last messages; none for a new session."""
        if await self._session() is None:
            return []
        store = self.executor.services.store
        return list((await store.get_messages(self.session_id, offset=-SHOWN_MESSAGES, limit=SHOWN_MESSAGES)).items)

    async def say(self, text: str, transcript: Transcript) -> None:
        """Send a message and print the reply as it comes."""
        await self._follow(await self.executor.execute(self.agent, text, session_id=self.session_id), transcript)

    async def go_on(self, transcript: Transcript) -> None:
        """Continue a run that crashed or has its answers, and print its reply. A run that was stopped stays so."""
        seen = (await find_session(self.executor.services, self.session_id)).seen
        if seen.standing is not Standing.STOPPED and not decide(seen, Intent.RESUME).is_refusal:
            await self._follow(await self.executor.resume(self.agent, self.session_id), transcript)

    async def _follow(self, handle: RunHandle[Any], transcript: Transcript) -> None:
        async for chunk in handle.stream():
            transcript.show(chunk)
        result = await handle.result()
        transcript.end(result.status, result.error)

    async def questions(self) -> list[PendingClientToolCall]:
        """Return what the session waits for, its sub-agents included."""
        services, session = self.executor.services, await self._session()
        return [] if session is None else await all_waiting(services.store, session, services.clock())

    async def answer(self, question: PendingClientToolCall, response: dict[str, Any]) -> None:
        """Submit the response to a question."""
        call_id = None if question.approval_id else question.tool_call_id
        await self.executor.submit_tool_result(self.session_id, call_id, approval_id=question.approval_id, **response)

    async def stop(self) -> None:
        """Ask the run to stop at the next safe point."""
        await self.executor.interrupt(self.session_id, "by hand")

    async def _session(self) -> SessionState | None:
        return await self.executor.services.store.load_state(self.session_id)


async def _opened(given: argparse.Namespace, resources: AsyncExitStack) -> tuple[AgentExecutor, Agent]:
    found = None if given.target is None else find(given.target)
    if isinstance(found, AgentExecutor):
        return await resources.enter_async_context(found), await _chosen(found, given)
    if given.session is not None:
        ensure_shared(address(given))
    stores = await resources.enter_async_context(open_stores(given.url))
    if given.target is None:
        return await resources.enter_async_context(demo_executor(stores)), assistant
    if isinstance(found, Agent):
        return await resources.enter_async_context(_executor_of(found, given, stores)), found
    executor = await resources.enter_async_context(executor_named(given.target, stores))
    return executor, await _chosen(executor, given)


def _executor_of(agent: Agent, given: argparse.Namespace, stores: Stores) -> AbstractAsyncContextManager[AgentExecutor]:
    """Return an executor with the given model or the agent's own, else the only executor in the agent's module."""
    model = given.model or os.environ.get(MODEL_VARIABLE) or agent.llm
    if model is not None:
        return AgentExecutor(stores, model, agents=[agent])
    others = executors_beside(given.target)
    if len(others) == 1:
        return executor_named(others[0], stores)
    ways = [f"run helix chat {other}" for other in others]
    ways += ["pass --model provider:model", f"set {MODEL_VARIABLE}, in .env for example"]
    raise InvalidArgument(f"Agent {agent.name!r} has no model: {', or '.join(ways)}.")


async def _chosen(executor: AgentExecutor, given: argparse.Namespace) -> Agent:
    """Return the agent that is named, the one of the session, or the only one."""
    names = [agent.name for agent in executor.agents]
    session = None if given.session is None else await executor.services.store.load_state(given.session)
    name = given.name or (session.agent_type if session is not None else names[0] if len(names) == 1 else None)
    if name in names:
        return executor.agents.get(name)
    known = ", ".join(names) or "none; give the executor agents=[...]"
    missing = "does not say which agent: pass --name" if name is None else f"has no agent {name!r}"
    raise InvalidArgument(f"{given.target!r} {missing}. Known agents: {known}.")


class Terminal:
    """The person at the terminal: prompts, answers, Ctrl-C."""

    def __init__(self, chat: Chat, loop: LoopThread, command: str) -> None:
        self._chat = chat
        self._loop = loop
        self._command = command
        self._transcript = Transcript(sys.stdout)

    def talk(self) -> None:
        """Read messages until the input ends."""
        chat = self._chat
        say(f"{chat.agent.name}, session {chat.session_id}. Ctrl-C stops a reply, Ctrl-D ends.")
        try:
            if self._loop.run(chat.is_running_elsewhere()):
                say("Another process has this session; waiting until it is done or its lease expires.")
                self._loop.run(chat.wait_for_others())
            for message in self._loop.run(chat.history()):
                self._transcript.message(message)
            self._attempt(chat.go_on(self._transcript))
            while True:
                if text := input("> ").strip():
                    self._attempt(chat.say(text, self._transcript))
        except (EOFError, KeyboardInterrupt):
            say(f"\nTo continue: {self._command} --session {chat.session_id}")

    def _attempt(self, work: Any) -> None:
        """Run until the session stops, asking its questions. An error is printed, and the chat continues."""
        try:
            self._loop.run(work, on_interrupt=self._chat.stop)
            while questions := self._loop.run(self._chat.questions()):
                for question in questions:
                    self._answer(question)
                self._loop.run(self._chat.go_on(self._transcript), on_interrupt=self._chat.stop)
        except AlreadyRunning as error:
            complain(f"{error} Another process runs it: try again when that is done.")
        except HelixError as error:
            complain(str(error))

    def _answer(self, question: PendingClientToolCall) -> None:
        """Ask, and submit the response. An invalid one is reported; open questions are asked again."""
        try:
            self._loop.run(self._chat.answer(question, self._ask(question)))
        except InvalidArgument as error:
            complain(str(error))

    def _ask(self, question: PendingClientToolCall) -> dict[str, Any]:
        say(f"\n{question.tool_name} {in_full(question.input)}")
        if question.kind == "outcome":
            return self._ask_what_happened()
        if question.later == "asked" and question.asked is not None:
            say(in_full(question.asked.question))
        if question.kind == "client":
            return {"result": _json_or_text(input("Answer: ").strip())}
        while True:
            text = input("Approve? y, n, or other arguments as JSON: ").strip()
            if text.lower() in ("y", "yes"):
                return {"approved": True}
            if text.lower() in ("n", "no"):
                return {"approved": False}
            if isinstance(arguments := _json_or_text(text), dict):
                return {"approved": True, "arguments": arguments}

    def _ask_what_happened(self) -> dict[str, Any]:
        """Ask whether a call took effect. An empty line is not accepted: a habit must not let a call run again."""
        while True:
            text = input("This call was cut off. Did it take effect? yes, no or unknown: ").strip().lower()
            if text in ("yes", "unknown"):
                return {"happened": True if text == "yes" else None}
            if text == "no":
                return {"happened": False}


def _json_or_text(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text
