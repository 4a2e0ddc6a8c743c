"""Users of the sessions: they submit, respond, regenerate, read streams, and record what was acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Literal

from helix_agents import AlreadyRunning, HelixError, Stores, StoreUnavailable
from helix_agents.errors import IdempotencyConflict, NotResumable, RunLost, StreamError, VersionConflict
from helix_agents.executor import AgentExecutor
from tests.soak.workload import agent, expected_roles

EXPECTED = (AlreadyRunning, NotResumable, RunLost, StoreUnavailable, StreamError, VersionConflict)
"""Errors that other processes and injected faults may cause for a caller. Any other error is a bug."""

LOOK_AGAIN_SECONDS = 0.1

SecondThought = Literal["regenerate", "edit", "go back"]
WAYS: tuple[Sequence[SecondThought], ...] = ((), ("regenerate",), ("edit", "go back"))


class Session:
    """One session as its user knows it."""

    def __init__(self, session_id: str, asks: list[bool], second_thoughts: Sequence[SecondThought] = ()) -> None:
        self.session_id = session_id
        self.asks = asks
        """For each turn, whether it asks a person."""
        self.second_thoughts = list(second_thoughts)
        """What the user does with the last turn afterwards. Each is removed once it was acknowledged."""
        self.left: str | None = None
        """The branch to go back to."""
        self.shelved = expected_roles(asks[-1:])["edit" not in second_thoughts :] if second_thoughts else []
        """The roles of the messages that are put aside in the end, on the other branch."""
        self.acknowledged = 0
        """How many turns were acknowledged."""
        self.is_over = False
        self.read: list[int] = []
        """The sequences that a reader got, in the order in which they came."""


class Client:
    """One user, who does a few things with one session after the other."""

    def __init__(self, stores: Stores, executor: AgentExecutor, faults: list[str]) -> None:
        self._stores = stores
        self._executor = executor
        self._faults = faults

    async def live(self, session: Session) -> None:
        """Take a session through all its turns, whatever happens."""
        reading = asyncio.create_task(self._read(session))
        try:
            while not session.is_over:
                try:
                    await self._go_on(session)
                except EXPECTED:
                    pass
                except HelixError as error:
                    self._faults.append(f"{session.session_id}: {type(error).__name__}: {error}")
                    return
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            await reading
        finally:
            reading.cancel()

    async def _go_on(self, session: Session) -> None:
        state = await self._stores.state.load_state(session.session_id)
        status = None if state is None else state.status
        if state is None and session.acknowledged:
            self._faults.append(f"{session.session_id}: was acknowledged and is gone")
            session.is_over = True
        elif status == "failed":
            self._faults.append(f"{session.session_id}: failed: {state and state.error}")
            session.is_over = True
        elif status in (None, "completed"):
            await self._next_turn(session)
        elif state is not None and status == "suspended_client_tool":
            for call_id, call in state.pending_client_tool_calls.items():
                if call.submitted_at is None:
                    await self._executor.submit_tool_result(session.session_id, call_id, approved=True)
            await self._executor.resume(agent, session.session_id)
        elif status == "interrupted":
            await self._executor.resume(agent, session.session_id)

    async def _next_turn(self, session: Session) -> None:
        run = await self._stores.state.get_current_run(session.session_id)
        if run is not None and run.status != "completed":
            return  # it is closing
        if session.acknowledged == len(session.asks):
            await self._think_again(session)
            return
        turn = session.acknowledged
        message = f"{'ask' if session.asks[turn] else 'go'} {turn}"
        key = f"{session.session_id} {turn}"
        try:
            await self._executor.submit(agent, message, session_id=session.session_id, idempotency_key=key)
        except IdempotencyConflict as error:
            self._faults.append(f"{session.session_id}: {error}")
        session.acknowledged += 1

    async def _think_again(self, session: Session) -> None:
        """Regenerate or edit the last turn, and perhaps go back: the other branch is the same, so nothing changes."""
        thought, name = next(iter(session.second_thoughts), None), session.session_id
        key = f"{name} {thought}"
        if thought == "regenerate":
            await self._executor.regenerate(name, agent=agent, idempotency_key=key)
        elif thought == "edit":
            messages = (await self._stores.state.get_messages(name, limit=None)).items
            asked = [message for message in messages if message["role"] == "user"][-1]
            await self._executor.edit(name, asked["id"], asked["content"], agent=agent, idempotency_key=key)
        elif thought == "go back":
            if session.left is None:
                branches = await self._executor.list_branches(name)
                session.left = next(branch.branch_id for branch in branches if not branch.is_active)
            await self._executor.switch_branch(name, session.left)
        else:
            session.is_over = True
            return
        session.second_thoughts.pop(0)

    async def _read(self, session: Session) -> None:
        """Read the stream, and reconnect after every lost connection."""
        while not session.is_over:
            try:
                position = session.read[-1] if session.read else 0
                reader = await self._stores.streams.create_resumable_reader(session.session_id, from_sequence=position)
                if reader is not None:
                    async for stored in reader.stored():
                        session.read.append(stored.sequence)
            except EXPECTED:
                pass
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def live_on(client: Client, names: Callable[[], str], rng: random.Random, until: asyncio.Event) -> list[Session]:
    """Go through sessions, one after the other, until the event is set; return the sessions."""
    done: list[Session] = []
    while not until.is_set():
        asks = [rng.random() < 0.4 for _ in range(rng.choice((1, 1, 2)))]
        session = Session(names(), asks, rng.choice(WAYS))
        done.append(session)
        await client.live(session)
    return done
