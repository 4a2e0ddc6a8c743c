"""The same Workers on an older workerd, and with the latest compatibility date that the newer one knows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_agents import open_stores
from tests.cloudflare.client import Client, new_session, numbers
from tests.cloudflare.flows import Flows
from tests.cloudflare.scenes import Performance
from tests.cloudflare.workerd import AGENTS, BRIDGE, EXAMPLES, FLOWS, INSIDE, RUNTIMES, PythonWorkerd, Runtime, Workerd
from tests.servers.fixtures import started

OTHERS = [
    pytest.param(RUNTIMES["older"], id="older"),
    pytest.param(RUNTIMES["latest-date"], id="latest-date", marks=pytest.mark.soak),
]


@pytest.fixture(scope="module", params=OTHERS)
def workers(request: pytest.FixtureRequest) -> Iterator[PythonWorkerd]:
    beside = [INSIDE / name for name in ("costs.py", "deaths.py", "scene_agents.py")]
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(AGENTS, FLOWS, beside=beside, runtime=request.param))


def _declared(path: Path) -> str:
    found = re.search(r'"compatibility_date": "([0-9-]+)"', path.read_text(encoding="utf-8"))
    assert found, path
    return found[1]


@pytest.mark.parametrize("example", ["worker", "workflow"])
def test_all_tests_use_the_date_that_the_examples_declare(example: str) -> None:
    assert _declared(EXAMPLES / example / "wrangler.jsonc") == RUNTIMES["declared"].compatibility_date


def test_the_bridge_runs_with_the_date_that_it_declares_on_the_older_runtime() -> None:
    assert _declared(BRIDGE.with_name("wrangler.jsonc")) == RUNTIMES["older"].compatibility_date


async def test_an_agent_in_an_object_streams_and_completes(workers: PythonWorkerd) -> None:
    async with new_session() as session:
        client = Client(workers, session)
        await client.execute("elsewhere")
        frames = await client.watch_to_the_end("elsewhere")
        _, result = await client.ask("GET", "/result/elsewhere?wait=60")
    assert (result["status"], result["output"]) == ("completed", "Done, three notes.")
    assert numbers(frames) == sorted(set(numbers(frames))), "a chunk came twice or late"


async def test_a_run_by_workflows_survives_a_kill(workers: PythonWorkerd) -> None:
    async with new_session() as session:
        flows = Flows(workers, session)
        await flows.ask("migrate")
        performance = Performance(flows, "killed", [("submitted", None), ("submitted", 60)])
        await performance.begin()
        workers.kill9()
        workers.start()
        calm, killed = (await performance.end()).values()
    assert killed == calm


@pytest.mark.parametrize("runtime", OTHERS)
async def test_the_bridge_stores_and_streams(runtime: Runtime) -> None:
    with contextlib.ExitStack() as stack:
        server = started(stack, lambda: Workerd(runtime=runtime))
        host = server.url.removeprefix("http://")
        async with open_stores(f"d1://:{server.token}@{host}/DB0?tls=0") as stores:
            await stores.state.create_session("s", agent_type="a", custom_state={"n": 1})
            async with await stores.streams.create_writer("s", "run", "a") as writer:
                await writer.write({"type": "text_delta", "delta": "word"})
            state = await stores.state.load_state("s")
            assert state is not None
            assert state.custom_state == {"n": 1}
            assert [each.chunk["delta"] for each in await stores.streams.get_all_chunks("s")] == ["word"]
