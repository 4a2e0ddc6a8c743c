"""A client of `inside/flow_worker.py` that outlives the runtime: what is cut off by a kill is asked again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from helix_agents.conformance.executor.view import View
from tests.cloudflare.workerd import PythonWorkerd

LIMIT_SECONDS = 120


class Flows:
    """The routes of `inside/flow_worker.py`."""

    def __init__(self, server: PythonWorkerd, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._http = session
        self._rescue: asyncio.Task[Any] | None = None

    async def ask(self, verb: str, *path: str, **query: Any) -> Any:
        found = await self.tell(verb, *path, **query)
        assert not isinstance(found, dict) or "error" not in found or "status" in found, found
        return found

    async def tell(self, verb: str, *path: str, **query: Any) -> Any:
        """The same for what may be rejected."""
        params = {name: str(value) for name, value in query.items()}
        return await self._sent("GET", verb, *path, params=params)

    async def post(self, verb: str, *path: str, **body: Any) -> Any:
        return await self._sent("POST", verb, *path, json=body)

    async def _sent(self, method: str, *path: str, **more: Any) -> Any:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                address = "/".join([self.server.url, "flow_worker", *path])
                try:
                    async with self._http.request(method, address, **more) as reply:
                        status, text = reply.status, await reply.text()
                except (aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.1)  # killed, and not up again yet
                    continue
                assert status in (200, 400), text[-3000:]
                return json.loads(text)

    async def until(self, true: Callable[[], Awaitable[Any]]) -> Any:
        """Poll for something in another process, which offers no event."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (found := await true()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return found

    async def rescue(self) -> None:
        """Look after all runs, as a cron trigger does. Callers that come at the same time share one request."""
        if self._rescue is None or self._rescue.done():
            self._rescue = asyncio.create_task(self.ask("rescue"))
        await asyncio.shield(self._rescue)

    async def status(self, session_id: str, *wanted: str) -> None:
        """Wait until a session has one of these statuses."""

        async def reached() -> bool:
            state = await self.ask("state", session_id)
            return state is not None and state["status"] in wanted

        await self.until(reached)

    async def has_begun(self, session_id: str, calls: int = 1) -> bool:
        """Return whether so many tool calls of a session have begun."""
        return len(await self.ask("journal", session_id)) >= calls

    async def remains(self, session_id: str, initial: dict[str, Any]) -> dict[str, Any]:
        """What a turn leaves, without the name of its session; the stream as a careful reader sees it.

        `initial` is the custom state before the turn.
        """
        found = await self.ask("remains", session_id)
        assert found.pop("open_runs") == []
        view = View()
        for stored in await self.ask("chunks", session_id):
            view.take(stored["chunk"])
        assert view.state(initial) == found["states"][session_id]
        return dict(json.loads(json.dumps({**found, "view": view.summary()}).replace(session_id, "SESSION")))
