"""Agents by Cloudflare Workflows, on real workerd with its engine: answers, deadlines, interrupts, kills at every step.

The play is the kit's: parallel tools, sub-agents, an approval and a client's answer. However often the runtime dies, it
must leave what an undisturbed performance leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from helix_agents.conformance.executor.cast import ROOT_STATE
from helix_agents.conformance.executor.play import StagedLedger
from helix_agents.conformance.executor.view import View
from tests.cloudflare.client import new_session
from tests.cloudflare.workerd import FLOWS, PythonWorkerd
from tests.servers.fixtures import started

LIMIT_SECONDS = 120
CALLS = 11
"""How many tool calls the play has."""


class Flows:
    """The routes of `inside/flow_worker.py`."""

    def __init__(self, server: PythonWorkerd, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._url = f"{server.url}/flow_worker"
        self._http = session

    async def ask(self, verb: str, *path: str, **query: Any) -> Any:
        found = await self.tell(verb, *path, **query)
        assert not isinstance(found, dict) or "error" not in found or "status" in found, found
        return found

    async def tell(self, verb: str, *path: str, **query: Any) -> Any:
        """The same for what may be rejected."""
        address = "/".join([self._url, verb, *path])
        async with self._http.get(address, params={name: str(value) for name, value in query.items()}) as reply:
            text = await reply.text()
            assert reply.status in (200, 400), text[-3000:]
            return json.loads(text)

    async def post(self, verb: str, *path: str, **body: Any) -> Any:
        async with self._http.post("/".join([self._url, verb, *path]), json=body) as reply:
            return json.loads(await reply.text())

    async def until(self, true: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for something in another process; there is no event to wait for."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (found := await true()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return found

    async def status(self, session_id: str, *wanted: str) -> None:
        """Wait until a session has one of these statuses."""

        async def reached() -> bool:
            state = await self.ask("state", session_id)
            return state is not None and state["status"] in wanted

        await self.until(reached)

    async def perform(self, session_id: str, *, agent: str = "author") -> None:
        """Start the play unless it was started, answer what is asked, and wait for its end."""
        if await self.ask("state", session_id) is None:
            await self.ask("execute", session_id, agent)
        async with asyncio.timeout(LIMIT_SECONDS):
            while (result := await self.ask("result", session_id))["status"].startswith("suspended"):
                await self.ask("answer_all", session_id)
            assert result["status"] == "completed", result

    async def remains(self, session_id: str) -> dict[str, Any]:
        """What a performance leaves, without the name of its session; the stream as a careful reader sees it."""
        found = await self.ask("remains", session_id)
        assert found.pop("open_runs") == []
        view = View()
        for stored in await self.ask("chunks", session_id):
            view.take(stored["chunk"])
        assert view.state(ROOT_STATE) == found["states"][session_id]
        return dict(json.loads(json.dumps({**found, "view": view.summary()}).replace(session_id, "SESSION")))


@pytest.fixture(scope="module")
def server() -> Any:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(FLOWS))


@pytest.fixture
async def flows(server: PythonWorkerd) -> AsyncIterator[Flows]:
    async with new_session() as session:
        flows = Flows(server, session)
        await flows.ask("migrate")
        yield flows


async def performed(flows: Flows, session_id: str, *kills: int) -> dict[str, Any]:
    """Perform the play, and kill the runtime whenever so many tool calls have begun; return what is left.

    A call that had finished when the runtime died does not run again.
    """
    ledger = StagedLedger()
    for kill in kills:
        await flows.ask("stop", session_id, str(kill))
        performing = asyncio.create_task(_despite_death(flows.perform(session_id)))
        await flows.until(lambda kill=kill: _has(flows, session_id, kill))  # type: ignore[misc]
        await _still(flows, session_id)
        ledger.note(await flows.ask("staged", session_id), await flows.ask("journal", session_id))
        flows.server.kill9()
        await performing
        flows.server.start()
    await flows.ask("stop", session_id, "0")
    await flows.perform(session_id)
    ledger.settle(await flows.ask("journal", session_id))
    return await flows.remains(session_id)


async def _has(flows: Flows, session_id: str, count: int) -> bool:
    return len(await flows.ask("journal", session_id)) >= count


async def _still(flows: Flows, session_id: str) -> None:
    """Wait until the calls that may finish have been staged."""
    seen: list[Any] = []
    while len(seen) < 5 or any(each != seen[-1] for each in seen[-5:]):
        seen.append(await flows.ask("staged", session_id))
        await asyncio.sleep(0.05)


async def _despite_death(work: Awaitable[None]) -> None:
    with contextlib.suppress(aiohttp.ClientError, OSError):
        await work


async def test_the_play_killed_in_a_sub_agent_leaves_what_an_undisturbed_one_leaves(flows: Flows) -> None:
    calm = await performed(flows, "calm")
    lines = Counter(await flows.ask("journal", "calm"))
    assert len(lines) == CALLS
    assert set(lines.values()) == {1}
    assert set((await flows.ask("instances", "calm")).values()) == {"complete", "unknown"}
    assert await performed(flows, "killed", 7) == calm


@pytest.mark.soak
@pytest.mark.parametrize("kills", [*((kill,) for kill in range(1, CALLS + 1)), (2, 5), (4, 9), (1, 6, 10)], ids=str)
async def test_the_play_killed_at_every_call(flows: Flows, kills: tuple[int, ...]) -> None:
    if await flows.ask("state", "calm-soak") is None:
        await flows.perform("calm-soak")
    session_id = "killed-" + "-".join(map(str, kills))
    assert await performed(flows, session_id, *kills) == await flows.remains("calm-soak")


async def test_a_question_that_nobody_answers_ends_by_its_deadline(flows: Flows) -> None:
    await flows.ask("execute", "hasty", "hasty")
    await flows.status("hasty", "completed")
    assert (await flows.ask("result", "hasty"))["output"] == "Nobody answered."


async def test_an_answer_after_a_death_reaches_the_instance_that_waits(flows: Flows) -> None:
    """And twice is harmless; and an answer to a finished run is late."""
    await flows.ask("execute", "waiting", "author")
    await flows.status("waiting", "suspended_client_tool")
    flows.server.kill9()
    flows.server.start()
    (question,) = (await flows.ask("result", "waiting"))["suspended"]
    receipts = [await flows.post("answer", "waiting", tool_call_id=question["id"], approved=True) for _ in range(2)]
    assert [receipt["receipt"] for receipt in receipts] == ["accepted", "duplicate"]
    await flows.perform("waiting")
    late = await flows.post("answer", "waiting", tool_call_id=question["id"], approved=True)
    assert late["receipt"] in ("late", "duplicate")
    assert (await flows.ask("state", "waiting"))["status"] == "completed"


async def test_a_request_that_died_before_it_created_an_instance_is_made_good(flows: Flows) -> None:
    """By whoever waits for the run, or by the cron trigger."""
    await flows.ask("begin", "begun", "runner")
    assert set((await flows.ask("instances", "begun")).values()) == {"unknown"}
    assert (await flows.ask("result", "begun"))["output"] == "Done."
    await flows.ask("begin", "rescued", "runner")

    async def completed() -> bool:
        await flows.ask("rescue")
        return bool((await flows.ask("state", "rescued"))["status"] == "completed")

    await flows.until(completed)


async def test_an_attempt_that_is_repeated_while_the_first_still_runs_does_nothing_twice(flows: Flows) -> None:
    await flows.ask("execute", "overlap", "sleeper", workflow="HASTY_FLOWS")
    await flows.status("overlap", "completed")
    assert len(await flows.ask("journal", "overlap")) == 1
    assert (await flows.ask("remains", "overlap"))["states"] == {"overlap": {"count": 1}}


async def test_an_interrupted_run_stays_so_until_it_is_resumed(flows: Flows) -> None:
    """Also one that waited for an answer when it was interrupted, and whose deadline passes then."""
    await flows.ask("execute", "stopped", "sleeper")
    await flows.until(lambda: _has(flows, "stopped", 1))
    await flows.ask("interrupt", "stopped")
    await flows.status("stopped", "interrupted")
    await flows.ask("resume", "stopped", "sleeper")
    assert (await flows.ask("result", "stopped"))["output"] == "Awake."
    await flows.ask("execute", "stopped-waiting", "hasty")
    await flows.status("stopped-waiting", "suspended_client_tool")
    await flows.ask("interrupt", "stopped-waiting")

    async def over() -> bool:
        return "complete" in (await flows.ask("instances", "stopped-waiting")).values()

    await flows.until(over)  # its deadline has passed
    assert (await flows.ask("state", "stopped-waiting"))["status"] == "interrupted"
    await flows.ask("resume", "stopped-waiting", "hasty")
    assert (await flows.ask("result", "stopped-waiting"))["status"] == "completed"


# -- odd input


async def test_an_instance_that_exists_already_is_not_started_again(flows: Flows) -> None:
    await flows.ask("execute", "again", "sleeper")
    await flows.ask("create_again", "again")
    await flows.status("again", "completed")
    assert len(await flows.ask("journal", "again")) == 1


async def test_a_ticket_of_a_deleted_session_does_nothing_to_the_next_one_of_that_id(flows: Flows) -> None:
    await flows.ask("execute", "reborn", "hasty")
    await flows.status("reborn", "suspended_client_tool")
    assert await flows.ask("delete", "reborn") is True
    await flows.ask("execute", "reborn", "runner")
    assert (await flows.ask("result", "reborn"))["output"] == "Done."
    await asyncio.sleep(3)  # by now the deadline of the first one's question has woken its instance
    assert (await flows.ask("state", "reborn"))["runs"] == ["completed"]


async def test_what_is_larger_than_a_row_fails_the_run_and_says_why(flows: Flows) -> None:
    await flows.ask("execute", "hoard", "hoarder")
    result = await flows.ask("result", "hoard")
    assert result["status"] in ("completed", "failed")
    assert "larger than Cloudflare allows" in json.dumps([result, await flows.ask("remains", "hoard")])


@pytest.mark.parametrize(
    ("binding", "words"), [("TOKEN", "is not a Workflow binding"), ("FLOW_STREAMS", "is not a Workflow binding")]
)
async def test_a_binding_of_the_wrong_kind_is_rejected(flows: Flows, binding: str, words: str) -> None:
    rejected = await flows.tell("execute", "nothing", "runner", workflow=binding)
    assert rejected["error"] == "InvalidArgument"
    assert words in rejected["detail"]
