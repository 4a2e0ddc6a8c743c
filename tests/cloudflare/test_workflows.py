"""Agents by Cloudflare Workflows, on real workerd with its engine: the scenes of the kit, killed at every call to a
database; answers, deadlines, interrupts, odd input."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.cloudflare.client import new_session
from tests.cloudflare.flows import Flows
from tests.cloudflare.scenes import SCENES, Performance
from tests.cloudflare.workerd import FLOWS, INSIDE, PythonWorkerd
from tests.executor.test_webhooks import Receiver
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


MIDDLE = {"play": 200, "people": 90, "interrupted": 60, "aborted": 40, "submitted": 60, "standing": 80, "branched": 70}
AT_ONCE = 20
"""How many points of a scene one kill covers: each dies in its own session."""
MOST_POINTS = 600
CALM: dict[str, Any] = {}
"""What the scenes leave when nothing happens, and how many points they have."""


async def calm(flows: Flows) -> dict[str, Any]:
    """Return what the scenes leave when nothing happens, and how many points they have."""
    if not CALM:
        undisturbed = Performance(flows, "calm", [(name, None) for name in SCENES])
        await undisturbed.begin()
        left = await undisturbed.end()
        assert not [each for each in left.values() if isinstance(each, BaseException)], left
        CALM.update(left={name: left[name, None] for name in SCENES}, points=await undisturbed.points())
    return CALM


async def ensure_same_after_kill(flows: Flows, prefix: str, deaths: Sequence[tuple[str, int | None]]) -> None:
    """Run scenes, kill workerd when each has died, and compare what they leave after its restart."""
    performance = Performance(flows, prefix, deaths)
    await performance.begin()
    flows.server.kill9()
    flows.server.start()
    left = await performance.end()
    assert left == {(name, point): CALM["left"][name] for name, point in deaths}


async def test_scenes_of_the_kit_killed_in_the_middle_leave_what_undisturbed_ones_leave(flows: Flows) -> None:
    points = (await calm(flows))["points"]
    await ensure_same_after_kill(flows, "killed", list(MIDDLE.items()))
    assert all(points[name] > point for name, point in MIDDLE.items()), points


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1, MOST_POINTS, AT_ONCE))
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_of_the_kit_killed_at_every_call(flows: Flows, name: str, first: int) -> None:
    points = (await calm(flows))["points"]
    assert points[name] < MOST_POINTS
    if first > points[name]:
        pytest.skip(f"the scene has {points[name]} points")
    deaths = [(name, point) for point in range(first, min(first + AT_ONCE, points[name] + 1))]
    await ensure_same_after_kill(flows, "killed", deaths)


async def test_a_question_that_nobody_answers_ends_by_its_deadline(flows: Flows) -> None:
    await flows.ask("execute", "hasty", "hasty")
    await flows.status("hasty", "completed")
    assert (await flows.ask("result", "hasty"))["output"] == "Nobody answered."


async def test_an_answer_after_a_death_reaches_the_instance_that_waits(flows: Flows) -> None:
    """Sending it twice is harmless, and a response to a finished run is late."""
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
    """A caller that waits for the run repairs it, or the cron trigger does."""
    await flows.ask("begin", "begun", "runner")
    assert set((await flows.ask("instances", "begun")).values()) == {"unknown"}
    assert (await flows.ask("result", "begun"))["output"] == "Done."
    await flows.ask("begin", "rescued", "runner")

    async def completed() -> bool:
        await flows.ask("rescue")
        return bool((await flows.ask("state", "rescued"))["status"] == "completed")

    await flows.until(completed)


async def test_an_answer_whose_request_died_before_it_told_the_instance_is_made_good(flows: Flows) -> None:
    await flows.ask("execute", "untold", "author")
    await flows.status("untold", "suspended_client_tool")
    (question,) = (await flows.ask("result", "untold"))["suspended"]
    await flows.post("answer_untold", "untold", tool_call_id=question["id"], approved=True)

    async def asks_again() -> bool:
        await flows.rescue()
        return bool((await flows.ask("state", "untold"))["status"] == "suspended_awaiting_children")

    assert await flows.until(asks_again)


async def test_an_attempt_that_is_repeated_while_the_first_still_runs_does_nothing_twice(flows: Flows) -> None:
    await flows.ask("execute", "overlap", "sleeper", workflow="HASTY_FLOWS")
    await flows.status("overlap", "completed")
    assert len(await flows.ask("journal", "overlap")) == 1
    assert (await flows.ask("remains", "overlap"))["states"] == {"overlap": {"count": 1}}


async def test_an_interrupted_run_stays_so_until_it_is_resumed(flows: Flows) -> None:
    """This includes a run that waited for a response when it was interrupted, and whose deadline passes later."""
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


async def test_a_regenerated_and_an_edited_turn_run_in_instances_of_their_own(flows: Flows) -> None:
    await flows.ask("execute", "regenerated", "sleeper")
    await flows.status("regenerated", "completed")
    again = await flows.ask("regenerate", "regenerated")
    await flows.status("regenerated", "completed")
    ((_, message_id), *_) = await flows.ask("messages", "regenerated")
    edited = await flows.post("edit", "regenerated", message_id=message_id, content="Anew.")
    await flows.status("regenerated", "completed")
    for run in (again, edited):
        assert await flows.ask("instance", run["run_id"]) == "complete"
    rejected = await flows.tell("regenerate", "regenerated", deps="something")
    assert rejected["error"] == "InvalidArgument"


async def test_a_run_of_many_steps_continues_in_successive_instances(flows: Flows) -> None:
    await flows.ask("execute", "long", "runner")
    await flows.status("long", "completed")
    assert (await flows.ask("remains", "long"))["states"] == {"long": {"count": 12}}

    async def over() -> bool:
        return bool(await flows.ask("parts", "long") == ["complete"] * 3 + ["unknown"])

    await flows.until(over)


async def test_a_run_that_the_engine_has_given_up_is_interrupted_and_can_be_resumed(flows: Flows) -> None:
    await flows.ask("execute", "given-up", "sleeper")
    await flows.until(lambda: flows.has_begun("given-up"))
    await flows.ask("terminate", "given-up")

    async def interrupted() -> bool:
        await flows.rescue()
        return bool((await flows.ask("state", "given-up"))["status"] == "interrupted")

    await flows.until(interrupted)
    await flows.ask("resume", "given-up", "sleeper")
    assert (await flows.ask("result", "given-up"))["output"] == "Awake."


async def test_an_instance_takes_back_what_an_aborted_turn_did(flows: Flows) -> None:
    await flows.ask("execute", "bought", "buyer")
    await flows.status("bought", "suspended_client_tool")
    await flows.ask("abort", "bought")
    await flows.status("bought", "failed")
    assert await flows.ask("journal", "bought") == ["pay 1", "pay 2", "undo 2", "undo 1"]


async def test_a_schedule_starts_its_run_by_the_cron_trigger(flows: Flows) -> None:
    await flows.ask("schedule", "scheduled", "runner", seconds=1)

    async def started() -> bool:
        await flows.rescue()
        return await flows.ask("state", "scheduled") is not None

    await flows.until(started)
    assert (await flows.ask("result", "scheduled"))["output"] == "Done."
    for _ in range(2):
        await flows.rescue()
    assert (await flows.ask("state", "scheduled"))["runs"] == ["completed"]


async def test_an_instance_sends_the_end_of_its_run_to_a_webhook(flows: Flows) -> None:
    receiver = Receiver()
    async with await asyncio.start_server(receiver.serve, "127.0.0.1", 0) as server:
        await flows.ask("webhook", str(server.sockets[0].getsockname()[1]))
        await flows.ask("execute", "reported", "runner")
        await receiver.has(taken=1)
    await flows.ask("webhook", "0")
    assert receiver.types == ["1 run.completed"]


async def test_a_step_by_workflows_costs_little_more_than_one_without(flows: Flows) -> None:
    """Per step, on the same stores: the claim of each step, and its own write of the last chunks. 13 steps."""
    await flows.ask("plain", "cost-plain", "runner")
    await flows.ask("execute", "cost-flow", "runner", workflow="LONG_FLOWS")
    await flows.status("cost-flow", "completed")
    await flows.until(lambda: _is_closed(flows, "cost-flow"))
    plain, flow = await flows.ask("costs", "cost-plain"), await flows.ask("costs", "cost-flow")
    print("13 steps, plain and by Workflows:", plain, flow)
    # 2.5 and 7, and a write of chunks more in each step that a busy machine makes longer than chunks gather.
    assert flow["requests"] - plain["requests"] <= 4 * 13
    assert flow["rows"] - plain["rows"] <= 10 * 13


async def _is_closed(flows: Flows, session_id: str) -> bool:
    return "running" not in (await flows.ask("state", session_id))["runs"]


# -- odd input


async def test_an_instance_that_exists_already_is_not_started_again(flows: Flows) -> None:
    await flows.ask("execute", "again", "sleeper")
    await flows.ask("create_again", "again")
    await flows.status("again", "completed")
    assert len(await flows.ask("journal", "again")) == 1


async def test_an_answer_to_a_finished_instance_changes_nothing(flows: Flows) -> None:
    await flows.ask("execute", "finished", "runner")
    await flows.status("finished", "completed")
    before = await flows.ask("remains", "finished")
    for _ in range(2):
        await flows.ask("send_to_finished", "finished")
    assert await flows.ask("remains", "finished") == before
    assert (await flows.ask("state", "finished"))["runs"] == ["completed"]


async def test_a_ticket_of_a_deleted_session_does_nothing_to_the_next_one_of_that_id(flows: Flows) -> None:
    first = (await flows.ask("execute", "reborn", "hasty"))["run_id"]
    await flows.status("reborn", "suspended_client_tool")
    assert await flows.ask("delete", "reborn") is True
    await flows.ask("execute", "reborn", "runner")
    assert (await flows.ask("result", "reborn"))["output"] == "Done."

    async def over() -> bool:
        return await flows.ask("instance", first) in ("complete", "errored")

    await flows.until(over)  # the deadline of the first one's question has woken its instance
    assert (await flows.ask("state", "reborn"))["runs"] == ["completed"]


async def test_what_is_larger_than_a_row_fails_the_call_and_says_why(flows: Flows) -> None:
    await flows.ask("execute", "hoard", "hoarder")
    result = await flows.ask("result", "hoard")
    assert result["status"] == "completed"
    remains = await flows.ask("remains", "hoard")
    assert "too large for this database (at most 1000000 bytes)" in json.dumps(remains)


@pytest.mark.parametrize(
    ("part", "binding", "words"),
    [
        ("workflow", "MISSING", "None is not a Workflow binding. Pass env.AGENT_WORKFLOW"),
        ("workflow", "TOKEN", "A str is not a Workflow binding"),
        ("workflow", "FLOW_STREAMS", "is not a Workflow binding"),
        ("streams", "MISSING", "None is not a Durable Object namespace. Pass the binding of the class StreamServer"),
        ("streams", "DB", "is not a Durable Object namespace"),
        ("streams", "STRANGERS", "extends, helix_agents.cloudflare.StreamServer"),
        ("database", "MISSING", "None is not a D1 database. Inside a Worker pass the binding"),
        ("database", "FLOW_STREAMS", "is not a D1 database"),
    ],
)
async def test_a_binding_that_is_missing_or_of_the_wrong_kind_is_rejected(
    flows: Flows, part: str, binding: str, words: str
) -> None:
    rejected = await flows.tell("execute", f"nothing-{part}-{binding}", "runner", **{part: binding})
    assert rejected["error"] == "InvalidArgument"
    assert words in rejected["detail"]
