"""Stepper: one step of a run at a time, in any process. What a durable engine needs of the executor.

The engine keeps a `Ticket` between two steps: plain data, small, without a word of the conversation. Everything else is
in the stores. The commit of a step also releases the run, so the next step continues the same run, in any process; only
if the process that worked on it died is the run taken over, as `resume` would. A process that wakes up too late is
rejected.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, NamedTuple, Protocol

import msgspec

from ...agent import Agent
from ...codec import Json
from ...errors import AlreadyRunning, InvalidArgument, NotResumable, RunLost, SessionNotFound, StaleTicket
from ...messages import Message
from ...retry import RESULT
from ...types import InterruptFlag, RunRecord, SessionState, SessionStatus
from ..handle import RunHandle
from ..local_runs import LocalRuns
from ..options import Input, read_request
from ..services import Services
from ..session.claim import Claim, NewRun
from ..session.closing import close, decided
from ..session.observe import Found, find
from ..session.standing import Action, Intent, Seen, Standing
from ..session.take_over import continue_run, take_over
from ..starting import Starter

MAX_KEPT_CONVERSATIONS = 256
LEASES_TO_WAIT = 4


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands between two steps."""

    session_id: str
    agent_type: str
    run_id: str
    version: int
    """The session's: who comes with a smaller one has missed something."""
    first_step: int
    """How many steps the session had before this turn."""
    steps: int
    """How many it has now."""
    status: SessionStatus = "active"
    output: Json = None
    error: str | None = None

    @property
    def done(self) -> bool:
        """Whether the run has come to rest: it ended, was interrupted, or waits for an answer."""
        return self.status != "active"


class Kept(NamedTuple):
    """What this process knows after a step: most often the next one comes here, too, and need not load it again."""

    session: SessionState
    run: RunRecord
    messages: list[Message]
    looked_at: int
    """When somebody last looked whether the run shall stop."""


class SteppedExecutor(Protocol):
    """What a stepper needs of its executor."""

    @property
    def services(self) -> Services: ...

    @property
    def runs(self) -> LocalRuns: ...

    @property
    def starter(self) -> Starter: ...


class Stepper:
    """Starts runs and does single steps of them.

    `engine`: the name of the engine that decides where the steps run. Workers and servers on the same stores leave such
    runs alone until they stop.
    """

    def __init__(self, executor: SteppedExecutor, *, engine: str = "stepper") -> None:
        self._runs = executor.runs
        self._starter = executor.starter
        self._services = executor.services
        self._engine = engine
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    async def begin(self, agent: Agent | str, input: Input, *, session_id: str | None = None, **options: Any) -> Ticket:
        """Store a run, as `executor.submit` does with the same options. No worker starts it: `step` does.

        With an `idempotency_key` it may be tried again: then it returns where the session stands by now.
        """
        return await self.look(agent, (await self.submit(agent, input, session_id=session_id, **options)).session_id)

    async def submit(
        self, agent: Agent | str, input: Input, *, session_id: str | None = None, **options: Any
    ) -> RunHandle:
        """Do what `begin` does, and return a handle on the run; with a key that was used before, on that run."""
        request = read_request(self._runs.known(agent), input, {**options, "session_id": session_id})
        return await self._starter.start(request, released=True, engine=self._engine)

    async def look(self, agent: Agent | str, session_id: str) -> Ticket:
        """Return where a session stands now, whichever process works on it."""
        found = await find(self._services, session_id, agent=self._runs.known(agent))
        return _ticket(found.existing, found.run)

    async def step(self, agent: Agent | str, ticket: Ticket, *, retry: bool = False) -> Ticket:
        """Do one step and return the next ticket. A ticket that is done is resumed if it can be, else returned again.

        Raises `AlreadyRunning` if another process works on the run, and `StaleTicket` for a step that has been done.
        `retry`: this may not be the first try. Then a step that has been done is not an error, and a process that
        seems to work on the run may be dead: its lease is waited for.
        """
        agent = self._runs.known(agent)
        _ensure_ticket(agent, ticket)
        if not retry:
            return await self._step(agent, ticket, retry=False)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LEASES_TO_WAIT * self._services.lease_seconds
        while True:
            try:
                return await self._step(agent, ticket, retry=True)
            except AlreadyRunning:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(RESULT.first_seconds)

    async def _step(self, agent: Agent, ticket: Ticket, *, retry: bool) -> Ticket:
        looked_at = self._services.clock()
        if (known := await self._claim_known(ticket)) is not None:
            claim, flag, looked_at = known
        else:
            found, claimed = await self._claim(agent, ticket, retry=retry)
            if claimed is None:
                return _ticket(found.existing, found.run)
            claim, flag = claimed, found.existing.interrupt_flag
        deps = await self._runs.deps_for(agent, claim.session)
        driven = await self._runs.open(agent, claim, deps)
        if flag is not None and flag.run_id == claim.run.run_id:
            driven.context.stop.request(flag.reason, abort=flag.abort)  # the step may be shorter than a poll of it
        result = await driven.drive(steps=1)
        owned = driven.context.owned
        run = driven.context.run
        if result.status == "active":
            self._keep(Kept(owned.session, run, owned.messages, looked_at))
        ticket = _ticket(owned.session, run)
        return msgspec.structs.replace(ticket, status=result.status, output=result.output, error=result.error)

    async def _claim_known(self, ticket: Ticket) -> tuple[Claim, InterruptFlag | None, int] | None:
        """Claim the next step, if this process did the last one and the session has not changed since."""
        services, kept = self._services, self._kept.pop(ticket.session_id, None)
        if kept is None or (kept.session.version, kept.run.run_id) != (ticket.version, ticket.run_id):
            return None
        flag, looked_at = None, kept.looked_at
        if services.clock() - looked_at >= services.poll_seconds * 1000:
            looked_at = services.clock()
            flag = await services.store.check_interrupt_flag(ticket.session_id)
        try:
            seen = Seen(Standing.RELEASED, ticket.session_id, ticket.run_id, "active", self._engine)
            found = Found(kept.session, kept.run, seen, messages=kept.messages)
            claim = await continue_run(services, found, known=True)
        except (AlreadyRunning, RunLost, SessionNotFound):
            return None  # then it is worth reading what has happened
        return claim, flag, looked_at

    async def _claim(self, agent: Agent, ticket: Ticket, *, retry: bool) -> tuple[Found, Claim | None]:
        """Claim the run for its next step; None if there is nothing to do."""
        services = self._services
        intent = Intent.RESUME if ticket.done else Intent.STEP
        try:
            found, action = await decided(
                services, intent, ticket.session_id, agent=agent, engine=self._engine, messages=True
            )
        except NotResumable:  # it still waits, or has ended
            return await find(services, ticket.session_id, agent=agent), None
        session, run = found.existing, found.run
        if run is None or not await self._is_of_its_turn(ticket, run):
            raise StaleTicket(ticket.session_id, "its turn is over")
        if action is Action.CLOSE:
            await close(services, found)
        if action is Action.TAKE_OVER:
            new = NewRun(f"run-{services.ids()}", engine=self._engine)
            return found, await take_over(services, found, new)
        if action is not Action.CONTINUE:
            return found, None
        if session.step_count == ticket.steps:
            return found, await continue_run(services, found)
        if retry:
            return found, None
        done = session.step_count - ticket.steps
        raise StaleTicket(session.session_id, f"{done} more {'step has' if done == 1 else 'steps have'} been done")

    async def _is_of_its_turn(self, ticket: Ticket, run: RunRecord) -> bool:
        """Return whether a run is the ticket's, or went on with that one after it had stopped or died."""
        if run.run_id == ticket.run_id:
            return True
        runs = await self._services.store.list_runs(ticket.session_id)
        resumed = {each.run_id: each.resumes for each in runs}
        earlier = resumed.get(run.run_id)
        while earlier is not None and earlier != ticket.run_id:
            earlier = resumed.get(earlier)
        return earlier is not None

    def _keep(self, kept: Kept) -> None:
        self._kept[kept.session.session_id] = kept
        if len(self._kept) > MAX_KEPT_CONVERSATIONS:
            self._kept.popitem(last=False)


def _ticket(session: SessionState, run: RunRecord | None) -> Ticket:
    return Ticket(
        session_id=session.session_id,
        agent_type=session.agent_type,
        run_id=run.run_id if run else "",
        version=session.version,
        first_step=run.first_step if run else 0,
        steps=session.step_count,
        status=session.status,
        output=session.output,
        error=session.error,
    )


def _ensure_ticket(agent: Agent, ticket: Ticket) -> None:
    if not isinstance(ticket, Ticket):
        raise InvalidArgument(
            f"A step needs a Ticket, not {type(ticket).__name__}: msgspec.convert(data, Ticket) makes one."
        )
    if ticket.agent_type != agent.name:
        raise InvalidArgument(
            f"The ticket of session {ticket.session_id!r} is for agent {ticket.agent_type!r}, not for {agent.name!r}: "
            "pass that agent."
        )
