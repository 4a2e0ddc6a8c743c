"""`examples/worker` runs as it stands: the same file, in Pyodide in workerd."""

from __future__ import annotations

import aiohttp

from tests.cloudflare.workerd import PythonWorkerd


async def test_the_example_answers_and_keeps_its_notes(python_workers: PythonWorkerd) -> None:
    headers = {"authorization": f"Bearer {python_workers.token}"}
    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(f"{python_workers.url}/entry/", headers=headers, timeout=timeout) as session:
        body = {"agent_type": "assistant", "message": "Hello", "session_id": "first"}
        async with session.post("execute", json=body) as reply:
            assert reply.status == 202, await reply.text()
        async with session.get("result/first?wait=60") as reply:
            assert (await reply.json())["output"] == "I noted it."
        async with session.get("sessions/first/state") as reply:
            assert (await reply.json())["custom_state"] == {"notes": ["hello"]}
