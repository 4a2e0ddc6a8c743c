"""Read, stop, respond to and delete sessions, wherever they run.

Executes nothing: a request is a write that the run reads, or the end of a session that no run owns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from ..agent import AgentRegistry
from ..codec import Json
from ..errors import AlreadyRunning, InvalidArgument, RunLost, SessionExists, SessionNotFound
from ..failures import ABORTED, DELETED_REASON
from ..ids import RESERVED_PREFIX, ensure_id
from ..retry import CLOSING, DELETING
from ..stores.blobs.spaces import link_space
from ..types import Page, SessionState
from .inbox import Waiting, list_waiting
from .services import Services
from .session.admin import delete_tree, restore_session
from .session.closing import Ending, close, end, wait_seconds
from .session.left_behind import abandoned_effects_message
from .session.observe import CanResume, Found, can_resume, find
from .session.questions import Answer, ReceiptStatus, ToolResultReceipt, submit
from .session.standing import Action, Intent, Standing, decide, refusal
from .step.undo import is_undoing


class StopsRuns(Protocol):
    """Stops a run of this process without waiting until it polls its flag."""

    def request_stop(self, run_id: str | None, reason: str | None, *, abort: bool) -> None: ...


class Completion(msgspec.Struct, frozen=True):
    """The result of completing a deferred call. `session`: the session that waited, before the response.

    `status` is as in a `ToolResultReceipt`, or `unknown` (the token is not ours) or `gone` (the session was deleted).
    """

    status: ReceiptStatus | Literal["unknown", "gone"]
    session: SessionState | None = None


class RemoteControl:
    """Controls sessions wherever they run."""

    def __init__(self, services: Services, agents: AgentRegistry, local: StopsRuns) -> None:
        self._services = services
        self._agents = agents
        self._local = local

    async def can_resume(self, session_id: str, *, user_id: str | None = None) -> CanResume:
        """Return whether `resume` would continue the session, and why or why not."""
        found = await find(self._services, session_id, user_id=user_id)
        if found.session is None:
            raise SessionNotFound(session_id)
        return can_resume(found.seen)

    async def interrupt(self, session_id: str, reason: str | None = None, *, user_id: str | None = None) -> None:
        """Ask a session's run to stop at the next safe point, or stop the session itself if no run owns it."""
        if reason is not None and not isinstance(reason, str):
            raise InvalidArgument(f"The reason for an interrupt must be a string, not {type(reason).__name__}.")
        await self._stop(session_id, Ending("interrupted", reason), user_id, set())

    async def abort(
        self, session_id: str, reason: str | None = None, *, user_id: str | None = None
    ) -> SessionState | None:
        """Stop a session's run immediately, its tools included, or fail the session itself if no run owns it.

        Return the session if another process has to continue it, to undo what its turn did; otherwise None.
        """
        if reason is not None and (not isinstance(reason, str) or reason.startswith(RESERVED_PREFIX)):
            raise InvalidArgument(
                f"The reason for an abort must be a string that does not start with {RESERVED_PREFIX!r}."
            )
        await self._stop(session_id, Ending("failed", reason or ABORTED, ABORTED), user_id, set())
        left = await self._services.store.load_state(session_id)
        return left if left is not None and is_undoing(left) else None

    async def submit_tool_result(
        self,
        session_id: str,
        tool_call_id: str | None = None,
        *,
        approval_id: str | None = None,
        result: Json = ...,
        error: str | None = None,
        approved: bool | None = None,
        reason: str | None = None,
        arguments: Mapping[str, Json] | None = None,
        happened: Json = ...,
        answered_by: str | None = None,
        user_id: str | None = None,
    ) -> ToolResultReceipt:
        """Store the response to a question that a run asked."""
        if (tool_call_id is None) == (approval_id is None):
            raise InvalidArgument("Pass either the tool_call_id or the approval_id of the question.")
        given = [
            result is not ... and happened is not True,
            error is not None,
            approved is not None,
            happened is not ...,
        ]
        if sum(given) != 1:
            raise InvalidArgument(
                "Pass exactly one of result, error, approved and happened. happened=True may have a result."
            )
        if happened is not ... and not isinstance(happened, bool | None):
            raise InvalidArgument(f"happened must be True, False or None, not {happened!r}.")
        if approved is not None and not isinstance(approved, bool):
            raise InvalidArgument(f"approved must be True or False, not {approved!r}.")
        if not isinstance(error, str | None) or not isinstance(reason, str | None):
            raise InvalidArgument("error and reason must be strings.")
        if not isinstance(answered_by, str | None):
            raise InvalidArgument(f"answered_by must be a string, not {type(answered_by).__name__}.")
        if arguments is not None and (approved is not True or not isinstance(arguments, Mapping)):
            raise InvalidArgument("arguments must be an object and requires approved=True.")
        response: dict[str, Json]
        if approved is not None:
            response = {"approved": approved, "reason": reason}
            if arguments is not None:
                response["arguments"] = dict(arguments)
        elif happened is not ...:
            response = {"happened": happened, "reason": reason}
            if result is not ...:
                response["result"] = result
        else:
            response = {"error": error} if error is not None else {"result": result}
        answer = Answer(ensure_id(tool_call_id or approval_id, "the id of a question"), response, answered_by)
        seen = await self._session(session_id, user_id)
        return await submit(
            self._services.store, self._services.clock, self._agents, session_id, answer, addressed=seen.incarnation
        )

    async def complete_deferred(self, token: str, *, result: Json, error: str | None) -> Completion:
        """Store the response of a token's holder."""
        if (result is ...) == (error is None):
            raise InvalidArgument("Pass either result or error.")
        services, target = self._services, self._services.hook_tokens.read(token)
        if target is None:
            return Completion("unknown")
        response: dict[str, Json] = {"result": result} if error is None else {"error": error}
        session = await services.store.load_state(target.session_id)
        if session is None or session.incarnation != target.incarnation:
            return Completion("gone")
        pending = session.pending_client_tool_calls.get(target.tool_call_id)
        if pending is not None and pending.submitted_at is not None and pending.response == response:
            return Completion("accepted", session)  # repeated, because the first response was lost
        answer = Answer(target.tool_call_id, response)
        try:
            receipt = await submit(
                services.store,
                services.clock,
                self._agents,
                target.session_id,
                answer,
                incarnation=target.incarnation,
            )
        except SessionNotFound:
            return Completion("gone")
        except InvalidArgument:  # nothing is pending under this id: the turn is over
            return Completion("late", session)
        return Completion(receipt.status, session)

    async def list_waiting(
        self, *, user_id: str | None = None, agent_type: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Waiting]:
        """Return the open questions."""
        return await list_waiting(
            self._services.store,
            self._services.clock(),
            user_id=user_id,
            agent_type=agent_type,
            limit=limit,
            cursor=cursor,
        )

    async def delete_session(self, session_id: str, *, keep_usage: bool = False, user_id: str | None = None) -> bool:
        """Stop a session's run, then delete the session with its descendants, streams and usage."""
        services = self._services
        found = await find(services, session_id, user_id=user_id)
        if found.session is None:
            return False
        target = found.session
        deadline = asyncio.get_running_loop().time() + DELETING.within_seconds
        stopping = False
        while asyncio.get_running_loop().time() < deadline:
            action = decide(found.seen, Intent.DELETE).action
            if action is Action.REMOVE or found.session is None or found.session.incarnation != target.incarnation:
                break
            if action is Action.STOP_FIRST and not stopping:
                stopping = True
                await self._flag(found.session, found.seen.run_id, Ending("failed", DELETED_REASON))
            await asyncio.sleep(CLOSING.first_seconds)
            found = await find(services, session_id)
        if found.session is None:
            return True
        if services.blobs is not None and found.session.incarnation == target.incarnation:
            # Before the session is deleted, so that it can be repeated. A session that is created later stores its own
            # later.
            await services.blobs.delete(session_id, stored_until=found.read_at - 1)
        return await delete_tree(services, services.usage, target, keep_usage=keep_usage)

    async def fork(
        self,
        session_id: str,
        new_session_id: str,
        *,
        checkpoint_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
        user_id: str | None = None,
    ) -> SessionState:
        """Fork a session together with its blobs, which are linked first: a message never refers to a missing one.

        Raises `SessionExists` if an earlier session of the new id left a stream or usage behind: the fork must not
        adopt them, and deleting them here could hit a session that another process has created since.
        """
        found = await find(self._services, session_id, user_id=user_id)
        if found.session is None:
            raise SessionNotFound(session_id)
        blobs, store, usage = self._services.blobs, self._services.store, self._services.usage
        if await store.session_exists(new_session_id):
            raise SessionExists(new_session_id)
        if await self._services.streams.get_stream_info(new_session_id) is not None:
            raise SessionExists(new_session_id)
        if usage is not None and await usage.get_entries(new_session_id):
            raise SessionExists(new_session_id)
        if blobs is not None:
            await link_space(blobs, found.session.root_session_id or session_id, new_session_id)
        effects = await abandoned_effects_message(self._services, found.session, found.run, checkpoint_id)
        return await store.fork_session(
            session_id,
            new_session_id,
            checkpoint_id=checkpoint_id,
            append_messages=effects,
            metadata=metadata,
            tags=tags,
        )

    async def restore(self, session_id: str, checkpoint_id: str, *, user_id: str | None = None) -> SessionState:
        """Restore a session and its stream to a checkpoint. Raises `AlreadyRunning` if it is running."""
        return await restore_session(self._services, session_id, checkpoint_id, user_id=user_id)

    async def stop_and_wait(self, session_id: str) -> None:
        """Interrupt a session's run, and wait until it has stopped or died."""
        try:
            await self.interrupt(session_id, "Another message arrived.")
        except SessionNotFound:
            return
        while True:
            if (await find(self._services, session_id)).seen.standing not in (Standing.RUNNING, Standing.CLOSING):
                return
            await asyncio.sleep(CLOSING.first_seconds)

    async def _stop(self, session_id: str, ending: Ending, user_id: str | None, stopped: set[str]) -> None:
        stopped.add(session_id)
        intent = Intent.ABORT if ending.status == "failed" else Intent.INTERRUPT
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds(self._services)
        turn: int | None = None
        while loop.time() < until:
            found = await find(self._services, session_id, user_id=user_id)
            if turn is not None and turn != _turn_of(found):
                return  # the turn that the caller wanted to stop is over
            turn = _turn_of(found)
            decision = decide(found.seen, intent)
            if decision.is_refusal:
                raise refusal(found.seen, decision)
            if decision.action is Action.RETURN:
                return
            session = found.existing
            if decision.action is Action.FLAG:
                await self._flag(session, found.seen.run_id, ending)
                return
            try:
                if decision.action in (Action.CLOSE, Action.CLOSE_FIRST):
                    await close(self._services, found)
                    if decision.action is Action.CLOSE:
                        return
                elif decision.action is Action.END:
                    for wait in session.suspended_awaiting_children.values() if ending.status == "interrupted" else ():
                        if wait.child_session_id not in stopped:  # sessions may wait for each other
                            await self._stop(wait.child_session_id, ending, None, stopped)
                    await end(self._services, found, ending)
                    return
            except (AlreadyRunning, RunLost):
                continue  # it has changed: read it again
            await asyncio.sleep(CLOSING.first_seconds)
        raise AlreadyRunning(session_id)

    async def _flag(self, session: SessionState, run_id: str | None, ending: Ending) -> None:
        abort = ending.status == "failed"
        await self._services.store.set_interrupt_flag(session.session_id, ending.reason, run_id=run_id, abort=abort)
        self._local.request_stop(run_id, ending.reason, abort=abort)

    async def _session(self, session_id: str, user_id: str | None = None) -> SessionState:
        session = await self._services.store.load_state(session_id)
        if session is None or (user_id is not None and session.user_id != user_id):
            raise SessionNotFound(session_id)
        return session


def _turn_of(found: Found) -> int:
    """Return the number of the session's current turn."""
    return found.run.turn if found.run is not None else 0
