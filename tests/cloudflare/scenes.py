"""Scenarios of the kit (X2, X3, X4, X8, X9), run from outside by a client that retries requests that a kill cut off.

Each returns what is left at its end. However often the runtime dies, that must be what an undisturbed scene leaves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from helix_agents.conformance.executor.cast import ROOT_STATE
from helix_agents.conformance.executor.play import StagedLedger
from tests.cloudflare.flows import LIMIT_SECONDS, Flows

Scene = Callable[[Flows, str], Coroutine[Any, Any, Any]]
Death = tuple[str, int | None]
"""A scene, and the point at which it dies; None: it runs to its end."""
SENT: dict[str, Any] = {"sent": []}
COUNT: dict[str, Any] = {"count": 0}


async def play(flows: Flows, session_id: str) -> Any:
    """X2: the kit's scenario, with parallel tools, sub-agents, an approval and a client's responses."""
    await flows.ask("execute", session_id, "author", idempotency_key="k")
    while (await flows.ask("result", session_id))["status"].startswith("suspended"):
        await flows.ask("answer_all", session_id)
        await flows.rescue()  # a request that stored the last response may have died before it continued the run
    await _ended(flows, session_id, "completed")
    return await flows.remains(session_id, ROOT_STATE)


async def people(flows: Flows, session_id: str) -> Any:
    """X3: changed arguments, a rejection, a client's error, a deferred call by token, all sent twice; a deadline."""
    await flows.ask("execute", session_id, "desk", idempotency_key="k")
    asked = (await flows.ask("result", session_id))["suspended"]
    sends = [each["id"] for each in asked if each["tool"] == "send"]
    (measure,) = [each["id"] for each in asked if each["tool"] == "measure"]
    (render,) = [each["id"] for each in asked if each["tool"] == "render"]
    tokens = [line for line in await flows.ask("journal", session_id) if line.startswith("token ")]
    rendered: dict[str, Any] = {"result": {"pages": 3}}
    answers: list[tuple[str, dict[str, Any]]] = [
        ("answer", {"tool_call_id": sends[0], "approved": True, "arguments": {"to": "c"}}),
        ("answer", {"tool_call_id": sends[1], "approved": False, "reason": "Not to b."}),
        ("answer", {"tool_call_id": measure, "error": "no ruler"}),
        # A process that dies right after `defer` starts no job and tells no token: then the ids do the same.
        ("complete", {"token": tokens[-1].removeprefix("token "), **rendered})
        if tokens
        else ("answer", {"tool_call_id": render, **rendered}),
    ]
    for verb, answer in [each for each in answers for _ in range(2)]:
        receipt = await flows.post(verb, session_id, **answer)
        assert receipt["receipt"] in ("accepted", "duplicate", "late"), receipt
    await _ended(flows, session_id, "completed")
    return await flows.remains(session_id, SENT)


async def interrupted(flows: Flows, session_id: str) -> Any:
    """X4: an interrupt while a tool and a sub-agent work; both continue, and the next turn runs."""
    await flows.ask("execute", session_id, "patient", idempotency_key="k")
    await _begun(flows, session_id, 2)
    await flows.until(lambda: _accepted(flows, "interrupt", session_id))
    await _ended(flows, session_id, "interrupted")
    await flows.ask("end", session_id)
    await flows.tell("resume", session_id, "patient")  # rejected if a request that was cut off has resumed it
    await _ended(flows, session_id, "completed")
    first = await flows.remains(session_id, SENT)
    await flows.ask("execute", session_id, "patient", idempotency_key="next", said="And now?")
    await _ended(flows, session_id, "completed")
    return [first, await flows.remains(session_id, {"sent": ["waited"]})]


async def aborted(flows: Flows, session_id: str) -> Any:
    """X4: an abort while a tool and a sub-agent work; the conversation can be continued."""
    await flows.ask("execute", session_id, "patient", idempotency_key="k")
    await _begun(flows, session_id, 1)
    await flows.until(lambda: _accepted(flows, "abort", session_id))
    await _ended(flows, session_id, "failed")
    await flows.ask("end", session_id)
    await flows.ask("execute", session_id, "patient", idempotency_key="next", said="And now?")
    await _ended(flows, session_id, "completed")
    return (await flows.ask("remains", session_id))["open_runs"]


async def submitted(flows: Flows, session_id: str) -> Any:
    """X8: a request sent twice concurrently and later is one run, the next turn another; no instance is recreated."""
    one = {"idempotency_key": "one"}
    both = await asyncio.gather(*(flows.ask("execute", session_id, "counter", **one) for _ in range(2)))
    await _ended(flows, session_id, "completed")
    first = await flows.remains(session_id, COUNT)
    second = await flows.ask("execute", session_id, "counter", idempotency_key="two", said="And now?")
    await _ended(flows, session_id, "completed")
    again = await flows.ask("execute", session_id, "counter", **one)
    assert both[0] == both[1] == again != second
    await flows.ask("create_again", session_id)
    return [first, await flows.remains(session_id, {"count": 2})]


async def standing(flows: Flows, session_id: str) -> Any:
    """X9: another user finds nothing; the same checkpoint, restored and forked, continues its turn."""
    await flows.ask("execute", session_id, "counter", idempotency_key="k", user_id="alice")
    await _ended(flows, session_id, "completed")
    rejected = await flows.tell("interrupt", session_id, user_id="bob")
    assert rejected["error"] == "SessionNotFound"
    (first,) = [each["id"] for each in await flows.ask("checkpoints", session_id) if each["steps"] == 1]
    await flows.ask("restore", session_id, first)
    fork = f"{session_id}-fork"
    await flows.tell("fork", session_id, fork, first)  # rejected if a request that was cut off has made it
    for each in (session_id, fork):
        await flows.tell("resume", each, "counter")
        await _ended(flows, each, "completed")
    left = [await flows.remains(session_id, COUNT), await flows.ask("remains", fork)]
    return json.loads(json.dumps(left).replace(session_id, "SESSION"))


async def branched(flows: Flows, session_id: str) -> Any:
    """S17: a turn runs again, its message is edited, and the first branch comes back."""
    await flows.ask("execute", session_id, "counter", idempotency_key="k")
    await _ended(flows, session_id, "completed")
    left = [await flows.remains(session_id, COUNT)]
    await flows.ask("regenerate", session_id, idempotency_key="again")
    await _ended(flows, session_id, "completed")
    left.append(await flows.remains(session_id, COUNT))
    ((_, message_id), *_) = await flows.ask("messages", session_id)
    await flows.post("edit", session_id, message_id=message_id, content="Anew.", idempotency_key="edited")
    await _ended(flows, session_id, "completed")
    left.append(await flows.remains(session_id, COUNT))
    branches = await flows.ask("branches", session_id)
    assert [active for _, _, active in branches] == [False, True, False, False], branches
    await flows.ask("switch", session_id, branches[0][0])
    back = json.dumps(await flows.ask("remains", session_id))
    return [*left, json.loads(back.replace(session_id, "SESSION"))]


_ALL = (play, people, interrupted, aborted, submitted, standing, branched)
SCENES: dict[str, Scene] = {each.__name__: each for each in _ALL}
AGAIN = ("standing", "branched")
"""Scenes in which finished calls run again, because they go back."""


async def _ended(flows: Flows, session_id: str, status: str) -> None:
    async def ended() -> bool:
        state = await flows.ask("state", session_id)
        return bool(state["status"] == status and "running" not in state["runs"])

    await _looked_after(flows, ended)


async def _accepted(flows: Flows, verb: str, session_id: str) -> bool:
    """Return whether a request succeeds. One that a kill cut off may hold the session until its lease has expired."""
    return await flows.tell(verb, session_id) is None


async def _begun(flows: Flows, session_id: str, calls: int) -> None:
    await _looked_after(flows, lambda: flows.has_begun(session_id, calls))


async def _looked_after(flows: Flows, true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something. A cron trigger looks after the runs: a local engine does not start again by itself."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.3)
            await flows.rescue()


class Performance:
    """Many scenes run concurrently, each in its own session. `deaths` names scenes, and the point at which each dies;
    without a point it runs to its end. Then workerd is killed and started again."""

    def __init__(self, flows: Flows, prefix: str, deaths: Iterable[Death]) -> None:
        self._flows = flows
        self._ids = {death: f"{prefix}-{death[0]}-{death[1]}" for death in deaths}
        self._ledgers = {each: StagedLedger() for each in self._ids if each[0] not in AGAIN}
        self._tasks: dict[Death, asyncio.Task[Any]] = {}

    async def begin(self) -> None:
        """Run until every scene has died or ended."""
        for (name, point), session_id in self._ids.items():
            if point is not None:
                await self._flows.ask("die", session_id, str(point))
            self._tasks[name, point] = asyncio.create_task(SCENES[name](self._flows, session_id))
        await self._flows.until(self._has_stopped)
        for death, ledger in self._ledgers.items():
            staged = await self._flows.ask("staged", self._ids[death])
            ledger.note(staged, await self._flows.ask("journal", self._ids[death]))

    async def end(self) -> dict[Death, Any]:
        """Return what the scenes leave. A call that had finished when its process died has not run again."""
        found = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        left = dict(zip(self._tasks, found, strict=True))
        for death, ledger in self._ledgers.items():
            if not isinstance(left[death], BaseException):
                ledger.settle(await self._flows.ask("journal", self._ids[death]))
        return left

    async def points(self) -> dict[str, int]:
        """Return how many points each scene has passed since workerd was started."""
        return {name: (await self._flows.ask("points", each))["points"] for (name, _), each in self._ids.items()}

    async def _has_stopped(self) -> bool:
        return all([task.done() or await self._is_dead(death) for death, task in self._tasks.items()])

    async def _is_dead(self, death: Death) -> bool:
        return death[1] is not None and bool((await self._flows.ask("points", self._ids[death]))["dead"])
