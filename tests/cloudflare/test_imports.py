"""What can be imported where: names that need the Workers runtime say so, the others load nothing that is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helix_agents import InvalidArgument, cloudflare
from helix_agents.backends.cloudflare.rest import D1Rest
from helix_agents.cloudflare import D1StateStore, D1UsageStore, DurableObjectStreamManager, run_migration

ONLY_INSIDE = (
    "AgentServer",
    "AgentWorkflow",
    "CloudflareAgentExecutor",
    "DOBlobStore",
    "DOMemoryStore",
    "DOStateStore",
    "DOStreamManager",
    "DOUsageStore",
    "StreamServer",
    "route",
    "serve",
)


@pytest.mark.parametrize("name", ONLY_INSIDE)
def test_a_name_of_the_workers_runtime_says_that_it_works_only_inside_a_worker(name: str) -> None:
    with pytest.raises(ImportError, match=f"{name} works only inside a Cloudflare Worker") as raised:
        getattr(cloudflare, name)
    assert raised.value.name in ("js", "pyodide", "workers")


@pytest.mark.parametrize("name", sorted(set(cloudflare.__all__) - set(ONLY_INSIDE)))
def test_every_other_name_can_be_imported_anywhere(name: str) -> None:
    assert getattr(cloudflare, name).__doc__


def test_names_of_d1_load_neither_a_client_nor_the_runtime() -> None:
    program = (
        "import sys; from helix_agents.cloudflare import D1StateStore, D1UsageStore, run_migration;"
        "print([name for name in ('aiohttp', 'js', 'starlette', 'sqlite3') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("database", [None, "DB", object()], ids=["nothing", "a name", "an object"])
async def test_what_is_not_a_database_is_rejected_with_what_would_be_one(database: object) -> None:
    for attempt in (D1StateStore, D1UsageStore):
        with pytest.raises(InvalidArgument, match=r"is not a D1 database.*BridgeD1"):
            attempt(database)
    with pytest.raises(InvalidArgument, match="is not a D1 database"):
        await run_migration(database)
    with pytest.raises(InvalidArgument, match=r"has no Durable Objects\. Outside a Worker pass a Bridge"):
        DurableObjectStreamManager(database)


def test_a_d1_session_outside_a_worker_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match=r"session= needs env\.DB, inside a Worker"):
        D1StateStore(D1Rest("account", "database", token="t"), session="first-primary")
