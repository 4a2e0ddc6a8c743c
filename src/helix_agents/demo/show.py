"""Run the demo: start workers, kill one, approve as the person would, and show what a reader of the stream sees.

This process executes nothing of the run: it reads the stream that the workers write, across the death of one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import TextIO

from ..backends.registry import Stores, open_stores
from ..backends.url import parse_url
from ..chunks import Chunk
from ..codec import encode
from ..errors import InvalidArgument
from ..executor import AgentExecutor
from ..messages import Message, without_id
from .researcher import QUESTION, make_llm, researcher
from .work import work

SESSION = "ants"
CONTROL = "ants-undisturbed"
LOOK_AGAIN_SECONDS = 0.02


class Screen:
    """Prints chunks as they arrive: text continuously, everything else as a line with its time."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began = time.monotonic()
        self._flowing = ""

    def line(self, text: str) -> None:
        """Print one event."""
        self._break()
        self._out.write(f"{time.monotonic() - self._began:6.2f}s  {text}\n")
        self._out.flush()

    def show(self, chunk: Chunk) -> None:
        """Print one chunk."""
        match chunk:
            case {"type": "text_delta", "delta": text}:
                self._flow(chunk.get("agent_type", ""), text)
            case {"type": "thinking", "content": text} if text:
                self._flow("(thinking)", text)
            case {"type": "tool_start", "tool_name": name, "arguments": arguments}:
                self.line(f"-> {name} {encode(arguments)}")
            case {"type": "tool_end", "tool_name": name, "success": success}:
                self.line(f"<- {name} {'done' if success else 'failed'}")
            case {"type": "state_patch", "patches": patches}:
                self.line("   state: " + ", ".join(f"{patch['op']} {patch['path']}" for patch in patches))
            case {"type": "subagent_start", "agent_type": agent}:
                self.line(f"=> sub-agent {agent}")
            case {"type": "subagent_end", "agent_type": agent}:
                self.line(f"<= sub-agent {agent}")
            case {"type": "tool_approval_request", "tool_name": name, "input": given}:
                self.line(f"?? may I {name} {encode(given)}")
            case {"type": "tool_outcome_request", "tool_name": name, "input": given}:
                self.line(f"?? did this happen: {name} {encode(given)}")
            case {"type": "step_committed", "step_count": step}:
                self.line(f"== step {step} committed")
            case {"type": "stream_rewound", "step_count": step}:
                self.line(f"<< the stream goes back to step {step}; what follows is shown again")
            case {"type": "run_started" | "run_resumed" | "run_suspended" as kind}:
                self.line(f"** {kind.replace('_', ' ')}")

    def _flow(self, who: str, text: str) -> None:
        if self._flowing != who:
            self._break()
            self._out.write(f"{time.monotonic() - self._began:6.2f}s  {who}: ")
            self._flowing = who
        self._out.write(text)
        self._out.flush()

    def _break(self) -> None:
        if self._flowing:
            self._out.write("\n")
        self._flowing = ""


class Demo:
    """One run of the demo."""

    def __init__(self, url: str, stores: Stores, out: TextIO) -> None:
        self._url = url
        self._stores = stores
        self._screen = Screen(out)
        self._out = out
        self._worker: Process | None = None
        self._killed = False

    async def perform(self) -> None:
        """Run everything from the first worker to the last chunk."""
        self._screen.line(f"Question: {QUESTION}")
        await self._start("first")
        sequence = 0
        while True:
            reader = await self._stores.streams.create_resumable_reader(SESSION, from_sequence=sequence)
            if reader is None:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                continue
            async with reader:
                async for stored in reader.stored():
                    sequence = stored.sequence
                    self._screen.show(stored.chunk)
                    await self._maybe_kill(stored.chunk)
                if reader.outcome is None or reader.outcome.status != "paused":
                    break
            await self._answer()
        if self._worker is not None:
            await self._worker.wait()

    async def _start(self, name: str) -> None:
        path = os.pathsep.join(entry or os.curdir for entry in sys.path)
        self._worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"{__package__}.worker", self._url, SESSION, env={**os.environ, "PYTHONPATH": path}
        )
        self._screen.line(f"## the {name} worker process is {self._worker.pid}")

    async def _maybe_kill(self, chunk: Chunk) -> None:
        """Kill the first worker when one of its three searches is done and two are not."""
        if self._killed or chunk["type"] != "tool_end" or self._worker is None:
            return
        self._killed = True
        self._worker.send_signal(signal.SIGKILL)
        await self._worker.wait()
        self._screen.line(f"## kill -9: process {self._worker.pid} is dead, in the middle of step 1")
        await self._start("second")

    async def _answer(self) -> None:
        """Act as the person: approve everything that waits, then let a third process continue."""
        if self._worker is not None:
            await self._worker.wait()
        async with AgentExecutor(self._stores.state, self._stores.streams, make_llm()) as executor:
            handle = await executor.get_handle(researcher, SESSION)
            assert handle is not None
            for wait in (await handle.result()).suspended:
                await executor.submit_tool_result(SESSION, wait.tool_call_id, approved=True)
                self._screen.line(f"## nothing runs any more; a person agrees to {wait.tool_name}")
        await self._start("third")
        while (info := await self._stores.streams.get_stream_info(SESSION)) and info.status == "paused":  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def undisturbed(url: str, stores: Stores) -> None:
    """Execute the same run without disturbance."""
    while await work(url, CONTROL) not in ("completed", "failed"):
        async with AgentExecutor(stores.state, stores.streams, make_llm()) as executor:
            handle = await executor.get_handle(researcher, CONTROL)
            assert handle is not None
            for wait in (await handle.result()).suspended:
                await executor.submit_tool_result(CONTROL, wait.tool_call_id, approved=True)


async def transcript(stores: Stores, session_id: str) -> list[Message]:
    """Return all messages of a session, without the ids, which differ from run to run."""
    return [without_id(message) for message in (await stores.state.get_messages(session_id, limit=None)).items]


async def demo(url: str, out: TextIO) -> int:
    """Run the demo, compare it with an undisturbed run, and return the exit code."""
    async with open_stores(url) as stores:
        for session_id in (SESSION, CONTROL):
            async with AgentExecutor(stores.state, stores.streams, make_llm()) as executor:
                await executor.delete_session(session_id)
        control = asyncio.create_task(undisturbed(url, stores))
        await Demo(url, stores, out).perform()
        await control
        session = await stores.state.load_state(SESSION)
        other = await stores.state.load_state(CONTROL)
        same = await transcript(stores, SESSION) == await transcript(stores, CONTROL)
        same = same and session is not None and other is not None and session.custom_state == other.custom_state
        usage = await stores.usage.get_rollup(SESSION)
        runs = await stores.state.list_runs(SESSION)
    assert session is not None
    out.write(f"\nOutput:   {encode(session.output)}\n")
    out.write(f"State:    {encode(session.custom_state)}\n")
    out.write(f"Usage:    {usage.tokens.total} tokens, {usage.custom.get('pages', 0)} pages, ")
    out.write(", ".join(f"{name} {total.calls}x" for name, total in sorted(usage.tools.items())) + "\n")
    out.write("Runs:     " + ", ".join(f"{run.turn}: {run.status}" for run in runs) + "\n")
    out.write(f"Data:     {parse_url(url).shown}\n")
    out.write(f"Transcript and state {'equal' if same else 'DIFFER FROM'} those of an undisturbed run.\n")
    return 0 if same and session.status == "completed" else 1


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the demo."""
    parser.add_argument("--url", help="where the stores are; a new SQLite file unless given")


def run_demo(given: argparse.Namespace) -> int:
    """Run the demo; return 0 if everything went as expected."""
    if given.url is not None and parse_url(given.url).scheme == "memory":
        raise InvalidArgument("The demo starts several processes, which cannot share memory: stores. Omit --url.")
    url = given.url or f"sqlite:{Path(tempfile.mkdtemp(prefix='helix-demo-')) / 'helix.db'}"
    return asyncio.run(demo(url, sys.stdout))
