"""Open a run: turn a claimed session into an `OwnedSession`, its stream into a `FencedStream`, its lease into a
`LeaseKeeper`.

The only module that has both a run and the plain stores. `run/loop.py` executes the run.
"""

from __future__ import annotations

from typing import Any

from ..agent import Agent
from ..errors import StreamFenced, StreamNotActive
from ..safe_text import get_logger
from ..streams.contract import StreamWriter
from ..streams.writer import BatchingWriter
from .run.hooks import HookCaller, RunInfo
from .run.loop import Run
from .run.model_call import named
from .run.stop_signal import StopSignal
from .run_context import RunContext
from .services import Services
from .session.claim import Claim
from .session.lease import LeaseKeeper
from .session.owned import OwnedSession
from .step.artifacts import Artifacts
from .step.decisions import unanswered_calls
from .step.work import Children
from .stream.fenced import FencedStream

logger = get_logger("helix_agents.executor")


async def open_run(
    services: Services,
    agent: Agent,
    claim: Claim,
    children: Children,
    *,
    stop: StopSignal | None = None,
    parent: RunContext | None = None,
    deps: Any = None,
) -> Run:
    """Open a run of a claimed session, with an open stream and a renewed lease; `drive` executes it."""
    session, run, stop = claim.session, claim.run, stop or StopSignal()
    owned = OwnedSession(services.store, session, list(claim.messages), run.run_id)
    watch = LeaseKeeper(
        services.store,
        run=run,
        owner=owned.owner,
        lease_seconds=services.lease_seconds,
        poll_seconds=services.poll_seconds,
        claimed_at=claim.claimed_at,
        clock=services.clock,
        stop=stop,
        reclaim=owned.claim_again,
    )
    stream = FencedStream(
        services.streams,
        await _open_writer(services, agent, claim, owned),
        stream_id=session.stream_id,
        fence=claim.fence,
        session_id=session.session_id,
        run_id=run.run_id,
        agent_type=agent.name,
        step=session.step_count,
        ensure_owner=watch.ensure_owner,
        parent=parent.stream if parent else None,
        carries=services.carries and services.store.carries_to(session.session_id, session.stream_id),
    )
    context = RunContext(
        services=services.for_runs,
        agent=agent,
        claim=claim,
        owned=owned,
        stream=stream,
        watch=watch,
        stop=stop,
        hooks=HookCaller(services.hooks, _run_info(services, agent, claim, parent)),
        artifacts=Artifacts(services.blobs, session.root_session_id or session.session_id, owned.messages),
        follow_up=list(claim.follow_up),
        first_step=run.first_step,
        deps=parent.deps if parent else deps,
    )
    if claim.announce:
        _announce(stream, claim)
    verb = "continues" if claim.resumed else "starts"
    logger.info(
        "Run %s of session %s %s (agent %s, turn %d).", run.run_id, session.session_id, verb, agent.name, run.turn
    )
    watch.steps = session.step_count - context.first_step
    watch.start()
    return Run(context, children)


def _run_info(services: Services, agent: Agent, claim: Claim, parent: RunContext | None) -> RunInfo:
    """Return the description of a run for hooks."""
    return RunInfo(
        session_id=claim.session.session_id,
        run_id=claim.run.run_id,
        agent_type=agent.name,
        turn=claim.run.turn,
        parent_run_id=parent.run_id if parent else None,
        parent_tool_call_id=claim.run.parent_call.tool_call_id if claim.run.parent_call else None,
        tracing_context=claim.session.tracing_context,
        model=named(agent.llm or services.llm, "model"),
        provider=named(agent.llm or services.llm, "provider"),
    )


def _announce(stream: FencedStream, claim: Claim) -> None:
    if claim.resumed:
        # After chunks of an open step it belongs to that step: a rewind drops them together, and the marker follows.
        shown = not claim.rewound and bool(unanswered_calls(claim.messages)[1])
        step = claim.session.step_count + shown
        stream.emit({"type": "run_resumed", "run_id": claim.run.run_id, "turn": claim.run.turn, "step": step})
    else:
        stream.emit({"type": "run_started", "run_id": claim.run.run_id, "turn": claim.run.turn})


async def _open_writer(services: Services, agent: Agent, claim: Claim, owned: OwnedSession) -> StreamWriter:
    """Open the stream for this run. Raises `RunLost`."""
    stream_id, run_id = claim.session.stream_id, claim.run.run_id
    if claim.stream_is_open:
        writer = services.streams.attach_writer(stream_id, run_id, agent.name, fence=claim.fence)
        if writer is not None:
            if claim.wrote_at is not None and isinstance(writer, BatchingWriter):
                writer.wrote_at = claim.wrote_at
            return writer
    try:
        return await services.streams.create_writer(stream_id, run_id, agent.name, fence=claim.fence)
    except StreamFenced as error:
        raise claim.lost() from error
    except StreamNotActive:
        await owned.refresh()  # raises `RunLost` if another process has claimed the session
        raise
