"""The executor's methods that change a conversation: regenerate, edit, and its branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from ..agent import Agent, Output
from ..codec import Json
from ..errors import InvalidArgument
from ..ids import ensure_id, ensure_printable
from ..messages import Message
from ..types import Branch, SessionState
from .handle import RunHandle
from .local_runs import LocalRuns
from .options import BranchOptions, Input, Request, read_request
from .services import Services
from .session.branching import BranchStart, list_branches, switch_branch
from .session.observe import find
from .starting import Starter


class Conversations:
    """Methods of an executor that branch conversations."""

    services: Services
    runs: LocalRuns
    starter: Starter

    async def regenerate(
        self,
        session_id: str,
        *,
        message_id: str | None = None,
        agent: Agent[Output] | str | None = None,
        **options: Unpack[BranchOptions],
    ) -> RunHandle[Output]:
        """Run the turn that produced an assistant message again; by default the last turn.

        The session returns to the user's message, in one guarded commit with the start of the run. What followed is
        stored as a branch, which `switch_branch` restores. The options are in `BranchOptions`. Without `agent`, the
        agent is found by its name. Raises `InvalidArgument` for a message that is not a reply in this conversation,
        `AlreadyRunning` for a session that is running (unless `if_running="interrupt"`), and `VersionConflict` if
        another process changes the session concurrently.
        """
        return await self._branch(session_id, BranchStart(message_id, replaces=False), [], agent, options)

    async def edit(
        self,
        session_id: str,
        message_id: str,
        content: str | list[Json],
        *,
        agent: Agent[Output] | str | None = None,
        **options: Unpack[BranchOptions],
    ) -> RunHandle[Output]:
        """Replace a user message, even the first one, and run from there. Otherwise like `regenerate`."""
        ensure_printable(message_id, "message_id")
        edited: Message = {"role": "user", "content": content, "id": message_id}
        return await self._branch(session_id, BranchStart(message_id, replaces=True), edited, agent, options)

    async def _branch(
        self,
        session_id: str,
        branch_at: BranchStart,
        input: Input,
        agent: Agent[Output] | str | None,
        options: Mapping[str, Any],
    ) -> RunHandle[Output]:
        self.runs.ensure_open()
        ensure_id(session_id, "session_id")
        if options.get("if_running") == "enqueue":
            raise InvalidArgument("if_running='enqueue' cannot regenerate or edit a message: use 'interrupt'.")
        found = await find(self.services, session_id, user_id=options.get("user_id"))
        known = self.runs.known(found.existing.agent_type if agent is None else agent)
        request = read_request(known, input, {**options, "session_id": session_id})
        return await self._start_branch(replace(request, branch_at=branch_at, expected=found))

    async def _start_branch(self, request: Request) -> RunHandle:
        """Start the run of a new branch. Overridden where an engine does the work."""
        return await self.starter.start(request)

    async def list_branches(self, session_id: str, *, user_id: str | None = None) -> list[Branch]:
        """Return the branches of a conversation, in the order in which they start. Siblings share `message_id`."""
        return await list_branches(self.services, session_id, user_id=user_id)

    async def switch_branch(self, session_id: str, branch_id: str, *, user_id: str | None = None) -> SessionState:
        """Replace the end of the conversation with another branch, unchanged since it was left; return the session.

        Raises `AlreadyRunning` if the session is running, `InvalidArgument` for an unknown branch, and
        `VersionConflict` if another process changes the session concurrently.
        """
        return await switch_branch(self.services, session_id, branch_id, user_id=user_id)
