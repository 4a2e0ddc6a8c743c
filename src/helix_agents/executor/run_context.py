"""RunContext: one run and everything it works with, shared by the modules that execute it. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..agent import Agent
from ..llm.contract import ToolSpec
from ..messages import Message
from ..tools.tool import UNDO_PREFIX, Tool
from ..types import RunRecord
from .run.hooks import HookCaller
from .run.stop_signal import StopSignal
from .services import RunServices
from .session.claim import Claim
from .session.lease import LeaseKeeper
from .session.owned import OwnedSession
from .step.artifacts import READ_ARTIFACT, Artifacts
from .stream.fenced import FencedStream


@dataclass
class RunContext:
    """The objects and state of one run."""

    services: RunServices
    agent: Agent
    claim: Claim
    owned: OwnedSession
    stream: FencedStream
    watch: LeaseKeeper
    stop: StopSignal
    hooks: HookCaller
    artifacts: Artifacts
    """Large results and media of the session tree."""
    follow_up: list[Message]
    """Messages that arrived while the step was open; they follow that step's outcomes."""
    first_step: int
    """How many steps the session had when the turn started."""
    new_messages: list[Message] = field(default_factory=list)
    """The user's messages since the model was last called."""
    deps: Any = None
    """The dependencies of the tools."""
    warnings: list[str] = field(default_factory=list)
    """The writes that were lost in the steps of this run."""
    releases: bool = False
    """Whether the next commit that leaves the session active also releases the run."""
    released: bool = False
    shown_children: set[str] = field(default_factory=set)
    """The sub-agent calls that this run has emitted to its stream, even if only again."""

    def find_tool(self, name: str) -> Tool | None:
        """Return the agent's tool of that name, the one that reads artifacts, or one that undoes effects."""
        if name.startswith(UNDO_PREFIX):
            tool = self.agent.tools.get(name.removeprefix(UNDO_PREFIX))
            return None if tool is None else tool.as_undo()
        return self.agent.tools.get(name) or (self.artifacts.tool if name == READ_ARTIFACT else None)

    def tool_specs(self) -> list[ToolSpec]:
        """Return the tools that the model is offered now."""
        specs = self.agent.tool_specs(self.owned.state)
        return [*specs, self.artifacts.tool.spec] if self.artifacts.has_any else specs

    @property
    def session_id(self) -> str:
        """The session that the run owns."""
        return self.owned.session_id

    @property
    def run_id(self) -> str:
        """The run's own id."""
        return self.owned.run_id

    @property
    def run(self) -> RunRecord:
        """The run's record as it was stored last."""
        return self.watch.run

    @property
    def rewound(self) -> bool:
        """Whether the chunks of the open step were dropped and have to be emitted again."""
        return self.claim.rewound
