"""The agent loop: call the model, run its tool calls, commit, until there is an output or a reason to stop.

A `Run` owns a claimed session (`session/owned.py`) until it stops. `step/decisions.py` decides the result of a step,
`step/work.py` runs its calls, `step/commit.py` writes it, in an order that survives a kill at any point: the reply is
staged before its tools run, each outcome is staged before it is announced, chunks are flushed before the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from ...errors import (
    HelixError,
    IllegalTransition,
    ModelError,
    RunLost,
    StoreError,
    StreamError,
    StreamFenced,
    ToolsUnavailable,
    VersionConflict,
)
from ...failures import (
    ERROR,
    HISTORY_ERROR,
    INPUT_REFUSED,
    MODEL_ERROR,
    PARENT_FAILED,
    STREAM_ERROR,
    TOOLS_UNAVAILABLE,
    USAGE_LIMIT,
    FailureReason,
)
from ...llm.contract import ModelRequest, TokenUsage
from ...messages import EFFECTS_ROLE, Message
from ...safe_text import get_logger, without_credentials
from ...state import StepWrites
from ...types import StagedChanges
from ..handle import AgentResult
from ..run_context import RunContext
from ..session.claim import Claim
from ..session.standing import UNOWNED
from ..step.commit import StepCommitter
from ..step.decisions import NO_CUT, Cut, StagedAnswer, id_mark, step_id_of
from ..step.effects import add_first_intents
from ..step.ledger import effects_message
from ..step.open_step import OpenStep
from ..step.staging import flush_unstaged, may_run_again
from ..step.undo import is_undoing
from ..step.work import Aborted, Children, StepWork
from ..tasks import finish_despite_cancel
from .budget import over_limit, token_entry
from .guardrails import new_input, refusal_of
from .model_call import Answered, ModelCall
from .prompt import HistoryError, HistoryView
from .reopened import reopened_step
from .user_messages import announce

logger = get_logger("helix_agents.executor")


class Run:
    """One run of one session, from its claim until it stops."""

    def __init__(self, context: RunContext, children: Children) -> None:
        self.context = context
        self._children = children
        self._committer = StepCommitter(context)
        self._history = HistoryView(context)
        self._open: OpenStep | None = None
        """The step in progress."""
        self._steps_left: int | None = None
        self._handing_over = False

    # -- starting and stopping

    def hand_over(self) -> None:
        """Stop after the current step and leave the rest of the run to another process."""
        self._handing_over = True

    async def drive(self, *, steps: int | None = None) -> AgentResult:
        """Execute until the session stops. Raises `RunLost` or `StoreError`, but not errors of models or tools.

        `steps`: release the run with the commit of this many steps. Then the result is `active`, and any process may
        continue the run.
        """
        context = self.context
        self._steps_left = steps
        context.releases = steps == 1
        body = asyncio.create_task(self._body(), name=f"helix-run-{context.run_id}")
        context.watch.on_lost = body.cancel
        status, error, clean = "lost", None, False
        try:
            await asyncio.wait({body})
            if body.cancelled() and context.watch.lost is not None:
                raise context.watch.lost
            try:
                result = body.result()
            except (StreamFenced, IllegalTransition) as refused:
                raise context.claim.lost() from refused
            status, error, clean = result.status, result.error, True
            return result
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            if isinstance(raised, HelixError):
                logger.warning("Run %s of session %s was cut off: %s", context.run_id, context.session_id, raised)
            raise
        finally:
            # A run may be canceled twice; an interrupted cleanup would leave tasks running.
            over = clean and (status != "active" or context.released)
            await finish_despite_cancel(self._stop_tasks(body, clean=clean, over=over))
            logger.info(
                "Run %s of session %s stopped: %s after %d steps.",
                context.run_id,
                context.session_id,
                "handed over" if status == "active" else status,
                context.watch.steps,
            )
            await context.hooks.call("run_ended", status, error)

    async def _stop_tasks(self, body: asyncio.Task[AgentResult], *, clean: bool, over: bool) -> None:
        """Stop every task of the run."""
        context = self.context
        body.cancel()
        await asyncio.gather(body, return_exceptions=True)
        await context.watch.close()
        await context.stream.close(discard=not clean)
        if not over:
            await self._release(clean=clean)

    async def _body(self) -> AgentResult:
        tracing = await self.context.hooks.start()
        if tracing is not None:
            await self.context.owned.save(lambda session: msgspec.structs.replace(session, tracing_context=tracing))
        if is_undoing(self.context.owned.session):
            return await self._undo(self.context.claim)
        result = await self._turn()
        if not is_undoing(self.context.owned.session) or self.context.released:
            return result
        return await self._undo(replace(self.context.claim, staged=(), rewound=False))

    async def _undo(self, claim: Claim) -> AgentResult:
        """Undo what the failed turn did, then end it. Interrupts do not stop this: each call has its own time limit."""
        self.context.claim, self._open = claim, None
        if self.context.stop.hold():
            await self.context.owned.clear_interrupt_flag()
        return await self._turn()

    async def _turn(self) -> AgentResult:
        """Execute steps until the run stops; turn errors into a failed session."""
        try:
            return await self._steps()
        except ModelError as error:
            return await self._fail(str(error), MODEL_ERROR)
        except HistoryError as error:
            return await self._fail(str(error), HISTORY_ERROR)
        except ToolsUnavailable as error:
            return await self._fail(str(error), TOOLS_UNAVAILABLE)
        except (RunLost, StreamFenced, IllegalTransition, StoreError):
            raise  # this process cannot write: another one resumes the session (see `_release`)
        except StreamError as error:
            # A successor may have closed the stream. Writing the failure will show that: it is fenced.
            return await self._fail(str(error), STREAM_ERROR)
        except Exception as error:
            logger.warning("Run %s of session %s failed.", self.context.run_id, self.context.session_id, exc_info=error)
            return await self._fail(f"{type(error).__name__}: {error}", ERROR)

    async def _fail(self, error: str, reason: FailureReason) -> AgentResult:
        """End the session as failed at any point. Announces the failure after the stored chunks."""
        if self.context.owned.session.status != "active":
            raise self.context.claim.lost(f"it failed after its end was written ({error})")
        step, cut = self._open, NO_CUT
        if step is not None:
            # Perhaps the commit succeeded and only its response was lost.
            await self.context.owned.refresh()
            if self.context.owned.session.step_count < step.number:
                await self._committer.revert_patches(step)
                work = StepWork(self.context, step, self._children)
                await work.end_children(error, PARENT_FAILED)
                if left := effects_message(work.effects_so_far()):
                    cut = Cut(len(self.context.owned.messages), left)
        return await self._committer.fail(without_credentials(error), reason, cut)

    async def _steps(self) -> AgentResult:
        context = self.context
        self._open = step = await reopened_step(context, self._children)
        context.new_messages = new_input(context.owned.messages) if step is None else []
        while True:
            if step is None:
                if context.stop.requested:
                    return await self._committer.stop_between_steps(None)
                read, context.new_messages = context.new_messages, []
                refused = await self._refused_input(read)
                await announce(context, read if refused is None else refused[1].messages)
                if refused is not None:
                    refusal, cut = refused
                    return await self._committer.fail(f"The input was refused: {refusal}", INPUT_REFUSED, cut)
                over = await over_limit(context)
                if over is not None:
                    return await self._committer.fail(over, USAGE_LIMIT)
                context.stream.step = context.owned.session.step_count + 1
                await context.hooks.call("step_started", context.stream.step)
                replied = await self._call_model()
                if not isinstance(replied, OpenStep):
                    return await self._committer.stop_between_steps(replied)
                step = replied
                over = await over_limit(context, step) if step.calls else None
                if over is not None:
                    return await self._committer.refuse_calls(step, over, USAGE_LIMIT)
            result = await self._work(step)
            await context.hooks.call("step_ended", step.number, context.owned.session.status)
            if result is not None:
                return result
            step = None
            if self._should_release():
                await context.stream.flush()  # so that the next process need not check for the announcement
                return AgentResult("active")

    async def _refused_input(self, new: Sequence[Message]) -> tuple[Exception, Cut] | None:
        """Return why guards reject new messages, and the cut that removes them from the conversation; None if they
        pass.

        The next turn's model must not see them either. Messages that pass on their own stay.
        """
        context, guards = self.context, self.context.agent.input_guards
        if not new or not guards:
            return None
        refusal = await refusal_of(guards, new)
        if refusal is None:
            return None
        await context.watch.ensure_owner()
        passed = [message for message in new if len(new) > 1 and await refusal_of(guards, [message]) is None]
        rest = passed if len(passed) < len(new) else []  # rejected only together: all of them are removed
        messages = context.owned.messages
        first = next(place for place, message in enumerate(messages) if message is new[0])
        kept = [message for message in messages[first:] if message["role"] == EFFECTS_ROLE]
        return refusal, Cut(first, [*rest, *kept])

    def _should_release(self) -> bool:
        """Return whether to release the run after the step that was just committed."""
        if self._steps_left is not None:
            self._steps_left -= 1
            self.context.releases = self._steps_left == 1
        return self._handing_over or self._steps_left == 0

    async def _work(self, step: OpenStep) -> AgentResult | None:
        """Commit or suspend an open step; return None if the run continues."""
        work = StepWork(self.context, step, self._children)
        while True:
            worked = await work.work()
            if isinstance(worked, Aborted):
                return await self._committer.abort(step, worked.outcomes)
            if not step.missing:
                return await self._committer.commit(step)
            try:
                return await self._committer.suspend(step, worked.waits)
            except VersionConflict:
                await self.context.owned.refresh()

    async def _release(self, *, clean: bool) -> None:
        """Release the session immediately if this run still owns it."""
        context = self.context
        if not clean:
            with suppress(HelixError):
                if await context.owned.is_deleted():
                    return await context.stream.drop()
        if context.watch.lost is not None:
            return
        until = UNOWNED if clean else context.services.clock()
        try:
            await asyncio.shield(context.owned.release(until, context.watch.steps))
        except Exception as error:
            logger.warning(
                "Could not release run %s of session %s; others must wait until its lease expires: %s",
                context.run_id,
                context.session_id,
                error,
            )

    # -- the model

    async def _call_model(self) -> OpenStep | Message | None:
        """Return an open step, or the partial reply if the run was stopped."""
        context, session = self.context, self.context.owned.session
        number = session.step_count + 1
        await context.agent.refresh_tools()
        llm = context.agent.llm or context.services.llm
        call = ModelCall(
            llm,
            stream=context.stream,
            stop=context.stop,
            hooks=context.hooks,
            retry=context.services.retry,
            drop_partial=self._drop_partial_reply,
            taken_ids=context.owned.call_ids,
            id_mark=id_mark(session),
        )
        request = ModelRequest(
            messages=await context.artifacts.filled_in(await self._history.choose(number)),
            instructions=context.agent.instructions_for(context.owned.state),
            tools=context.tool_specs(),
            agent_type=context.agent.name,
            session_id=session.session_id,
            run_id=context.run_id,
            step=number,
            tool_choice=self._tool_choice(),
        )
        fingerprint = await context.services.fingerprints.of(request, llm, context.agent, self._history.window)
        answered = await call.ask(request)
        if not isinstance(answered, Answered):
            return answered.message
        step_id = step_id_of(session, context.run_id)
        (answer,) = context.owned.identified([answered.message], step_id)
        step = OpenStep(step_id, number, answer, context.owned.state)
        self._open = step
        step.before = self._history.to_commit()
        step.usage = self._token_entries(number, answered.usage)
        step.request = fingerprint
        if step.calls:
            await self._stage_answer(step)
        return step

    def _tool_choice(self) -> str:
        """Return the tool choice for the next request. A tool call is required once per turn, or no turn would end."""
        choice, has_steps = (
            self.context.agent.tool_choice,
            self.context.owned.session.step_count > self.context.first_step,
        )
        if choice in ("auto", "none"):
            return choice
        offered = [tool.name for tool in self.context.tool_specs()]
        possible = bool(offered) if choice == "required" else choice in offered
        return choice if possible and not has_steps else "auto"

    async def _stage_answer(self, step: OpenStep) -> None:
        """Store the reply, so that the model need not be called again.

        If all of its calls may run again, the first staged outcome or the commit stores it.
        """
        context = self.context
        answer = msgspec.to_builtins(StagedAnswer(step.answer, step.usage, step.request))
        step.unstaged[""] = StagedChanges("", 0, StepWrites(), answer, kind="answer")
        tools = [context.find_tool(call["name"]) for call in step.calls]
        if all(tool is None or may_run_again(tool, context.services.durability) for tool in tools):
            return
        add_first_intents(context, step)
        await context.watch.ensure_owner()
        await flush_unstaged(context, step)

    def _token_entries(self, number: int, usage: TokenUsage | None) -> list[dict[str, Any]]:
        if usage is None or self.context.services.usage is None:
            return []
        entry = token_entry(self.context, f"tokens-{self.context.services.ids()}", number, usage)
        return [msgspec.to_builtins(entry)]

    async def _drop_partial_reply(self) -> None:
        """Drop the chunks of an incomplete reply before the model is called again."""
        stream, session = self.context.stream, self.context.owned.session
        await stream.flush()
        await stream.rewind(session.step_count)
        if stream.parent is not None:
            data = {"session_id": session.session_id, "step_count": session.step_count}
            stream.emit({"type": "custom", "name": "subagent_rewound", "data": data})
