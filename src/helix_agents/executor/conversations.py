"""The part of the executor's API that changes what was said: regenerate, edit, and the branches that this leaves."""

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
from .options import BranchOptions, Input, read_request
from .services import Services
from .session.branching import Detour, list_branches, switch_branch
from .session.observe import find
from .starting import Starter


class Conversations:
    """What an executor does with conversations besides continuing them."""

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

        The session returns to where the user had asked, in one guarded commit with the start of the run. What followed
        is kept as a branch: `switch_branch` brings it back. The options are in `BranchOptions`. The agent is found
        by its name unless it is given. Raises `InvalidArgument` for a message that is not a reply in this
        conversation, `AlreadyRunning` for a session that runs (unless `if_running="interrupt"`), and `VersionConflict`
        if another process changes the session at the same time.
        """
        return await self._branch(session_id, Detour(message_id, replaces=False), [], agent, options)

    async def edit(
        self,
        session_id: str,
        message_id: str,
        content: str | list[Json],
        *,
        agent: Agent[Output] | str | None = None,
        **options: Unpack[BranchOptions],
    ) -> RunHandle[Output]:
        """Replace a user message, also the first one, and run from there. Everything else as for `regenerate`."""
        ensure_printable(message_id, "message_id")
        said: Message = {"role": "user", "content": content, "id": message_id}
        return await self._branch(session_id, Detour(message_id, replaces=True), said, agent, options)

    async def _branch(
        self,
        session_id: str,
        detour: Detour,
        input: Input,
        agent: Agent[Output] | str | None,
        options: Mapping[str, Any],
    ) -> RunHandle[Output]:
        self.runs.ensure_open()
        ensure_id(session_id, "session_id")
        if options.get("if_running") == "enqueue":
            raise InvalidArgument("if_running='enqueue' does not go with a change of what was said: 'interrupt' does.")
        found = await find(self.services, session_id, user_id=options.get("user_id"))
        known = self.runs.known(found.existing.agent_type if agent is None else agent)
        request = read_request(known, input, {**options, "session_id": session_id})
        return await self.starter.start(replace(request, detour=detour, meant_for=found))

    async def list_branches(self, session_id: str, *, user_id: str | None = None) -> list[Branch]:
        """Return the branches of a conversation, in the order in which they part. Siblings share `message_id`."""
        return await list_branches(self.services, session_id, user_id=user_id)

    async def switch_branch(self, session_id: str, branch_id: str, *, user_id: str | None = None) -> SessionState:
        """Leave the conversation for another branch, which comes back as it was left; return the session.

        Raises `AlreadyRunning` if the session is running, `InvalidArgument` for an unknown branch, and
        `VersionConflict` if another process changes the session at the same time.
        """
        return await switch_branch(self.services, session_id, branch_id, user_id=user_id)
