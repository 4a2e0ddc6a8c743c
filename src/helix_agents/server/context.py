"""ServerContext: what the routes of one app share. The executor, the users, the hosts and the limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import HTTPConnection

from ..agent import Agent
from ..errors import InvalidArgument, SessionNotFound
from ..executor import AgentExecutor, impatient
from ..stores.state.contract import StateStore
from ..streams.contract import StreamManager
from ..telemetry import MetricsHooks, OpenMetrics
from ..types import Conversation, SessionState
from .access import ensure_new_id, find_session
from .auth import Authenticate, User, authenticated
from .hosts import HostRules
from .limits import Limits, Occupancy
from .problems import Problem


class ServerContext:
    """One app. `executor` returns the executor, which a factory may open only when the app starts."""

    def __init__(
        self,
        executor: Callable[[], AgentExecutor],
        *,
        agents: Sequence[Agent | str] | None,
        authenticate: Authenticate | None,
        hosts: HostRules,
        limits: Limits,
    ) -> None:
        self._executor = executor
        if isinstance(agents, str) or not all(isinstance(agent, Agent | str) for agent in agents or ()):
            raise InvalidArgument("agents must be a list of agents, or of names of agents.")
        self._agents = agents
        self._authenticate = authenticate
        self.hosts = hosts
        self.limits = limits
        self.occupancy = Occupancy(limits)
        self.metrics = OpenMetrics()

    @property
    def executor(self) -> AgentExecutor:
        """The executor that runs the agents."""
        return self._executor()

    @property
    def store(self) -> StateStore:
        """The session store. Its calls fail fast: a request that cannot be served gets a response immediately."""
        return impatient(self.executor.services.store)

    @property
    def streams(self) -> StreamManager:
        """The stream manager. Its calls fail fast."""
        return impatient(self.executor.services.streams)

    async def user(self, connection: HTTPConnection) -> User:
        """Return the user of a request. Raises a `Problem`: 401 for a stranger, 403 for a foreign page."""
        self.hosts.ensure_origin(connection)
        return await authenticated(self._authenticate, connection)

    async def found(self, user: User, session_id: str, *, custom_state: bool = False) -> Conversation:
        """Return a session that this user may see and change, with its latest run. Raises `SessionNotFound`.

        One read. Custom state is None unless asked for.
        """
        found = await find_session(self.store, user, session_id, custom_state=custom_state)
        if found is None:
            raise SessionNotFound(session_id)
        return found

    async def session(self, user: User, session_id: str) -> SessionState:
        """Return a session that this user may see and change, without custom state. Raises `SessionNotFound`."""
        return (await self.found(user, session_id)).session

    async def session_or_new(self, user: User, session_id: str) -> SessionState | None:
        """Return the session that a request continues, or None if it creates it under this id.

        Raises `SessionNotFound` if the session is another user's, `InvalidArgument` if the new id is reserved.
        """
        found = await find_session(self.store, user, session_id)
        if found is None:
            ensure_new_id(session_id)
        return None if found is None else found.session

    def count_runs(self, executor: AgentExecutor) -> None:
        """Count what the runs of an executor do, for `GET /metrics`."""
        executor.add_hooks(MetricsHooks(self.metrics))

    def register_agents(self, executor: AgentExecutor) -> None:
        """Make the agents given to the app known to its executor. Raises `InvalidArgument` for an unknown name."""
        for agent in self._agents or ():
            executor.runs.known(agent)

    @property
    def agents(self) -> list[Agent]:
        """The agents that clients may start: those given to the app, else those given to the executor."""
        known = self.executor.agents
        if self._agents is None:
            return [known.get(name) for name in known.listed]
        return [known.get(agent if isinstance(agent, str) else agent.name) for agent in self._agents]

    def agent(self, name: str) -> Agent:
        """Return an agent that clients may start, or raise a `Problem`."""
        agents = {agent.name: agent for agent in self.agents}
        if name not in agents:
            known = ", ".join(sorted(agents)) or "none"
            raise Problem(404, "agent_not_found", f"There is no agent {name!r} here. Known agents: {known}.")
        return agents[name]
