"""Agents by Cloudflare Workflows, on real workerd with its engine: the scenes of the kit, killed at every call to a
database; answers, deadlines, interrupts, odd input."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cloudflare.client import new_session
from tests.cloudflare.flows import Flows
from tests.cloudflare.scenes import SCENES, Performance
from tests.cloudflare.workerd import FLOWS, INSIDE, PythonWorkerd
from tests.servers.fixtures import started


@pytest.fixture(scope="module")
def server() -> Any:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(FLOWS, beside=[INSIDE / "deaths.py", INSIDE / "scene_agents.py"]))


@pytest.fixture
async def flows(server: PythonWorkerd) -> AsyncIterator[Flows]:
    async with new_session() as session:
        flows = Flows(server, session)
        await flows.ask("migrate")
        yield flows


MIDDLE = {"play": 200, "people": 90, "interrupted": 60, "aborted": 40, "submitted": 60, "standing": 80}
CALM: dict[str, Any] = {}
"""What the scenes leave when nothing happens, and how many points they have."""


async def killed(flows: Flows, prefix: str, points: dict[str, int]) -> dict[str, Any]:
    """Play the scenes, kill workerd when each has died, and return what they leave after its restart."""
    performance = Performance(flows, prefix, points)
    calm = Performance(flows, "calm", {})
    await asyncio.gather(performance.begin(), *([] if CALM else [calm.begin()]))
    if not CALM:
        CALM.update(left=await calm.end(), points=await calm.points())
    flows.server.kill9()
    flows.server.start()
    return await performance.end()


async def test_scenes_of_the_kit_killed_in_the_middle_leave_what_undisturbed_ones_leave(flows: Flows) -> None:
    left = await killed(flows, "killed", MIDDLE)
    assert left == CALM["left"]
    assert all(CALM["points"][name] > point for name, point in MIDDLE.items()), CALM["points"]


@pytest.mark.soak
@pytest.mark.parametrize("point", range(1, 451))
async def test_scenes_of_the_kit_killed_at_every_call(flows: Flows, point: int) -> None:
    points = {name: point for name in SCENES if not CALM or point <= CALM["points"][name]}
    if not points:
        pytest.skip("no scene has so many calls")
    assert await killed(flows, f"killed-{point}", points) == CALM["left"]


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
    while (await flows.ask("result", "waiting"))["status"].startswith("suspended"):
        await flows.ask("answer_all", "waiting")
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
    await flows.until(lambda: flows.has_begun("stopped"))
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


async def test_a_step_by_workflows_costs_little_more_than_one_without(flows: Flows) -> None:
    """Per step, on the same stores: the claim of each step and a writer of its own. The run has 13 steps."""
    await flows.ask("plain", "cost-plain", "runner")
    await flows.ask("execute", "cost-flow", "runner")
    await flows.status("cost-flow", "completed")
    await flows.until(lambda: _is_closed(flows, "cost-flow"))
    plain, flow = await flows.ask("costs", "cost-plain"), await flows.ask("costs", "cost-flow")
    print("13 steps, plain and by Workflows:", plain, flow)
    assert flow["requests"] - plain["requests"] <= 6 * 13
    assert flow["rows"] - plain["rows"] <= 11 * 13


async def _is_closed(flows: Flows, session_id: str) -> bool:
    return "running" not in (await flows.ask("state", session_id))["runs"]


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
