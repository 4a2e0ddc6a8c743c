"""Webhooks: events about the ends of runs, sent to a real receiver that misbehaves, by processes that die."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, HelixError, InvalidArgument, ScriptedLLM, open_stores, tool
from helix_agents.backends.registry import Stores
from helix_agents.cli.targets import executor_named
from helix_agents.conformance.executor.harness import Clockwork
from helix_agents.conformance.executor.mortal import Life
from helix_agents.errors import ModelError
from helix_agents.executor import Webhook
from helix_agents.llm.scripted import Call

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes, ok").decode()
AGENT = Agent("main")


class Receiver:
    """An HTTP server that sends the queued responses, then 200."""

    def __init__(self) -> None:
        self.script: list[int | str] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.taken: list[dict[str, Any]] = []
        """The events that were accepted with 200, in order."""
        self.url = ""
        self._news = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readline()).split()[1].decode()
            lines = [line.decode().strip() async for line in _header(reader)]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append((path, headers, body))
            answer = self.script.pop(0) if self.script else 200
            if answer == "garbage":
                writer.write(b"this is not HTTP\r\n\r\n")
            elif answer != "nothing":
                writer.write(
                    f"HTTP/1.1 {answer} Said\r\nLocation: {self.url}/other\r\nContent-Length: 0\r\n\r\n".encode()
                )
            await writer.drain()
            if answer == 200:
                self.taken.append(json.loads(body))
        finally:
            writer.close()
            async with self._news:
                self._news.notify_all()

    async def has(self, *, requests: int = 0, taken: int = 0) -> None:
        """Wait until this many events have arrived."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: len(self.requests) >= requests and len(self.taken) >= taken)

    @property
    def types(self) -> list[str]:
        return [f"{event['turn']} {event['type']}" for event in self.taken]


async def _header(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while (line := await reader.readline()).strip():
        yield line


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made


@asynccontextmanager
async def executing(stores: Any, receiver: Receiver, script: Any, **options: Any) -> AsyncIterator[AgentExecutor]:
    hook = Webhook(f"{receiver.url}/events?a=1", SECRET)
    llm = ScriptedLLM(script)
    async with AgentExecutor(stores.state, stores.streams, llm, webhooks=[hook], **options) as executor:
        yield executor


async def at_rest(stores: Stores) -> None:
    """Wait until no outbox entry is being processed."""
    async with asyncio.timeout(30):
        while True:
            page = await stores.state.list_sessions(status="paused")
            if all(session.output["sending_until"] == 0 for session in page.items):
                return
            await asyncio.sleep(0.005)


@tool(requires_approval=True)
def publish() -> str:
    """Publish."""
    return "published"


def _by_turn(request: Any) -> Any:
    last = request.messages[-1]
    if last["role"] == "tool":
        return "Published."
    return {"One": "Hello.", "Two": ModelError("Overloaded."), "Three": [Call("publish")]}[last["content"]]


async def test_each_end_of_a_run_is_sent_once_signed_and_in_order(receiver: Receiver) -> None:
    agent = Agent("main", tools=[publish])
    async with open_stores("memory:") as stores:
        async with executing(stores, receiver, _by_turn) as executor:
            await executor.run(agent, "One", session_id="s", user_id="ann")
            await executor.run(agent, "Two", session_id="s", user_id="ann")
            asks = await executor.run(agent, "Three", session_id="s", user_id="ann")
            await receiver.has(taken=3)
            await executor.submit_tool_result("s", asks.suspended[0].tool_call_id, approved=True)
            await (await executor.resume(agent, "s")).result()
            await receiver.has(taken=4)
            await at_rest(stores)
            assert await executor.delete_session("s")
        assert (await stores.state.list_sessions()).items == []  # the outbox was deleted with the session
    assert receiver.types == ["1 run.completed", "2 run.failed", "3 run.suspended", "3 run.completed"]
    first, second, third, _ = receiver.taken
    assert (first["output"], first["user_id"], first["session_id"], first["error"]) == ("Hello.", "ann", "s", None)
    assert "Overloaded." in second["error"]
    assert [call["tool_name"] for call in third["suspended"]] == ["publish"]
    assert len({event["id"] for event in receiver.taken}) == 4
    for path, headers, body in receiver.requests:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert (path, headers["webhook-id"]) == ("/events?a=1", json.loads(body)["id"])


async def test_a_receiver_that_fails_gets_the_event_again_later_and_redirects_are_not_followed(
    receiver: Receiver,
) -> None:
    receiver.script = [301, 500, "nothing", "garbage", 404]
    clock = Clockwork()
    async with open_stores("memory:") as stores:
        async with executing(stores, receiver, ["One.", "Two."], clock=clock, lease_seconds=600) as executor:
            await executor.run(AGENT, "Go", session_id="s")
            for tries in range(1, 6):
                await receiver.has(requests=tries)
                await at_rest(stores)
                await executor.recover()  # too early: there is a pause between two tries
                clock.pass_seconds(5 * 2 ** (tries - 1) + 1)
                await executor.recover()
            await receiver.has(taken=1)
            await at_rest(stores)
    assert {path for path, _, _ in receiver.requests} == {"/events?a=1"}
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 1
    assert (len(receiver.requests), receiver.types) == (6, ["1 run.completed"])


async def test_a_dead_receiver_holds_up_no_run_and_gets_everything_in_order_once_it_is_back(
    receiver: Receiver,
) -> None:
    receiver.script = [500] * 3
    clock = Clockwork()
    async with open_stores("memory:") as stores:
        async with executing(stores, receiver, lambda request: "Done.", clock=clock, lease_seconds=6000) as executor:
            for turn in range(3):
                result = await executor.run(AGENT, f"Turn {turn}", session_id="s")
                assert result.status == "completed"
                await receiver.has(requests=turn + 1)
                await at_rest(stores)
            clock.pass_seconds(60)
            await executor.recover()
            await receiver.has(taken=3)
            await at_rest(stores)
    assert receiver.types == ["1 run.completed", "2 run.completed", "3 run.completed"]


async def test_serve_and_worker_take_a_receiver_from_the_environment(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIX_WEBHOOK_URL", receiver.url)
    monkeypatch.setenv("HELIX_WEBHOOK_SECRET", SECRET)
    async with open_stores("memory:") as stores:
        async with executor_named("tests.cli.chatty:make_executor", stores) as executor:
            await executor.run("other", "Hello", session_id="s")
            await receiver.has(taken=1)
    assert receiver.types == ["1 run.completed"]


async def test_only_the_chosen_events_are_sent(receiver: Receiver) -> None:
    hook = Webhook(receiver.url, SECRET, events=["run.failed"])
    async with open_stores("memory:") as stores:
        llm = ScriptedLLM(["One.", ModelError("No.")])
        async with AgentExecutor(stores, llm, webhooks=[hook]) as executor:
            for text in ("One", "Two"):
                await executor.run(AGENT, text, session_id="s")
            await receiver.has(taken=1)
    assert receiver.types == ["2 run.failed"]


async def test_dead_at_any_call_no_event_is_lost(receiver: Receiver, tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'app.db'}") as stores:
        measured = Life()
        async with executing(measured.wrap(stores), receiver, ["Done."]) as executor:
            await executor.run(AGENT, "Go", session_id="measured")
            await receiver.has(taken=1)
        for last in range(1, measured.calls + 1):
            for reply_lost in (False, True):
                receiver.taken.clear()
                life, clock, name = Life(last, reply_lost=reply_lost), Clockwork(), f"s-{last}-{reply_lost}"
                with suppress(HelixError):
                    async with executing(life.wrap(stores), receiver, ["Done."], clock=clock) as executor:
                        await executor.run(AGENT, "Go", session_id=name)
                await life.bury()
                if await stores.state.load_state(name) is None:
                    continue
                async with executing(stores, receiver, ["Done."], clock=clock, agents=[AGENT]) as executor:
                    clock.pass_seconds(61)
                    for handle in await executor.recover():
                        await handle.result()
                    clock.pass_seconds(61)
                    await executor.recover()
                    async with asyncio.timeout(30):
                        while not any(event["session_id"] == name for event in receiver.taken):
                            await executor.recover()
                            await asyncio.sleep(0.01)
                sent = {event["id"] for event in receiver.taken if event["session_id"] == name}
                assert len(sent) == 1, f"dead at call {last} ({reply_lost=}): {sent}"


KILLED = """
import asyncio, os, signal, sys
from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores
from helix_agents.executor import Hooks, Webhook

class Kill(Hooks):
    async def run_ended(self, run, status, error):
        os.kill(os.getpid(), signal.SIGKILL)

async def main(path, url, secret):
    async with open_stores("sqlite:" + path) as stores:
        hooks, webhooks = [Kill()], [Webhook(url, secret)]
        executor = AgentExecutor(stores, ScriptedLLM(["Done."]), hooks=hooks, webhooks=webhooks)
        await executor.run(Agent("main"), "Go", session_id="s")

asyncio.run(main(*sys.argv[1:]))
"""


async def test_killed_after_its_end_a_run_is_still_reported(receiver: Receiver, tmp_path: Path) -> None:
    path, clock = tmp_path / "app.db", Clockwork()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(path), f"{receiver.url}/events?a=1", SECRET, env=dict(os.environ)
    )
    assert await child.wait() == -signal.SIGKILL
    assert receiver.requests == []
    async with open_stores(f"sqlite:{path}") as stores:
        async with executing(stores, receiver, [], clock=clock, agents=[AGENT]) as executor:
            clock.pass_seconds(61)
            await executor.recover()
            await receiver.has(taken=1)
    assert receiver.types == ["1 run.completed"]


@pytest.mark.parametrize(
    "options",
    [
        {"url": "ftp://example.test/"},
        {"url": "https://"},
        {"url": "https://ann:pass@example.test/"},
        {"secret": "short"},
        {"secret": "whsec_not base64!"},
        {"events": ["run.started"]},
    ],
)
def test_a_webhook_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Webhook(**{"url": "https://example.test/", "secret": SECRET, **options})


def test_a_webhook_does_not_show_its_secret() -> None:
    assert SECRET not in repr(Webhook("https://example.test/?token=x", SECRET))
    assert "token" not in repr(Webhook("https://example.test/?token=x", SECRET))
