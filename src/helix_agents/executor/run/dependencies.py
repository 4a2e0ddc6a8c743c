"""Dependencies: objects that tools need from their process, such as clients and settings. Each run gets its own.

They are never stored. The caller that starts or resumes a run passes them, or the executor has a factory. An agent
whose tools require them by type (`ToolContext[Deps]`) does not start without them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...agent import Agent, AgentTool
from ...errors import HelixError, InvalidArgument
from ...stores.state.validate import ensure_metadata, ensure_tags
from ...tools.tool import Tool
from ...types import SessionState

DepsFactory = Callable[[SessionState], Any | Awaitable[Any]]


async def deps_for(agent: Agent, session: SessionState, given: Any, factory: DepsFactory | None) -> Any:
    """Return the dependencies for a run of this session. Raises `InvalidArgument` if its tools need some and none are
    given."""
    if given is None and factory is not None:
        try:
            made = factory(session)
            given = await made if inspect.isawaitable(made) else made
        except HelixError:
            raise
        except Exception as error:
            raise InvalidArgument(
                f"The deps_factory failed for session {session.session_id!r}: {type(error).__name__}: {error}"
            ) from error
    if given is None:
        tool = _tool_that_needs_deps(agent, set())
        if tool is not None:
            raise InvalidArgument(
                f"Tool {tool.name!r} of agent {agent.name!r} needs deps, but session {session.session_id!r} has none: "
                "pass deps=... to execute, resume or retry, or deps_factory=... to the executor."
            )
    return given


def _tool_that_needs_deps(agent: Agent, seen: set[str]) -> Tool | None:
    """Return a tool of the agent, or of one of its sub-agents, that requires dependencies."""
    seen.add(agent.name)
    for tool in agent.tools.values():
        if tool.needs_deps:
            return tool
        if isinstance(tool, AgentTool) and tool.agent.name not in seen:
            found = _tool_that_needs_deps(tool.agent, seen)
            if found is not None:
                return found
    return None


def future_session(agent: Agent, session_id: str, options: Mapping[str, Any]) -> SessionState:
    """Return a session that is about to be created, for a factory that needs its user."""
    ensure_tags(options["tags"])
    ensure_metadata(options["metadata"])
    return SessionState(
        session_id,
        agent.name,
        user_id=options["user_id"],
        tags=tuple(options["tags"]),
        metadata=dict(options["metadata"] or {}),
        expires_at=options["expires_at"],
    )
