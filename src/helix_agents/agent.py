"""Agent: the instructions, tools, state and output type of one kind of agent.

Plain data that the executor reads. `as_tool` makes an agent callable by another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .codec import Json
from .errors import InvalidArgument, shown
from .history import History
from .ids import ensure_id
from .limits import UsageLimits
from .llm.contract import LLM, ToolChoice, ToolSpec
from .llm.named import as_model
from .schema.signature import json_schema, parse_as, state_schema
from .state import ensure_fits, initial_state, view
from .tools.tool import Tool
from .tools.toolset import Toolset
from .types import SubSessionMode
from .values import InvalidInput, convert, to_json

FINISH_TOOL = "finish"

if TYPE_CHECKING:  # so that type checkers read a bare `Agent` as one with any output
    from typing_extensions import TypeVar as DefaultTypeVar

    Output = DefaultTypeVar("Output", default=Any)
else:
    Output = TypeVar("Output")

Guard = Callable[[Any], object]
"""Checks an input or output and raises to reject it; may be async."""


class Agent(Generic[Output]):
    """One kind of agent, known by its name in every process that runs or resumes it.

    `state`: the custom state of a new session; a dict, a type whose fields all have defaults, or an instance of a type.
    `output`: the type of the final output; the model then has to call a `finish` tool. `instructions`: a string, or a
    function of the state, which it gets as plain JSON or as its parameter is annotated. `llm`: this agent's own model,
    or its name, instead of the executor's. `history`: chooses what the model sees of the conversation (see
    `helix_agents.history`). `limits`: what each of its runs may spend. `tool_choice`: `auto`, `none`, or for the first
    step of a turn `required` or the name of a tool. `version` is recorded with each step's request.
    """

    def __init__(
        self,
        name: str,
        *,
        instructions: str | Callable[[Any], str] = "",
        description: str = "",
        tools: Sequence[Tool | Toolset] = (),
        state: Mapping[str, Json] | type | object | None = None,
        output: type[Output] | UnionType | None = None,
        max_steps: int = 20,
        llm: LLM | str | None = None,
        history: History | None = None,
        limits: UsageLimits | None = None,
        tool_choice: ToolChoice = "auto",
        version: str | None = None,
    ) -> None:
        self.name = ensure_id(name, "an agent's name")
        self.description = description
        self.max_steps = max_steps
        self.llm = None if llm is None else as_model(llm)
        self.output: Any = output
        self.history = history
        self.limits = limits
        self.tool_choice = tool_choice
        self.version = version
        self.input_guards: list[Guard] = []
        self.output_guards: list[Guard] = []
        self._instructions = instructions
        self._instructions_see = None if isinstance(instructions, str) else state_schema(instructions)
        self._state = state
        if not isinstance(instructions, str) and not callable(instructions):
            raise InvalidArgument(
                f"Agent {name!r}: instructions must be a string or a function, not {shown(instructions)}."
            )
        if isinstance(tools, Tool | Toolset) or not isinstance(tools, Iterable):
            raise InvalidArgument(f"Agent {name!r}: tools must be a list: write tools=[...].")
        if max_steps.__class__ is not int:
            raise InvalidArgument(f"Agent {name!r}: max_steps must be an integer, not {shown(max_steps)}.")
        self._tools = _by_name(name, [each for each in tools if not isinstance(each, Toolset)])
        self._toolsets = [each for each in tools if isinstance(each, Toolset)]
        if max_steps < 1:
            raise InvalidArgument(f"Agent {name!r}: max_steps must be at least 1, not {max_steps}.")
        if output is not None and FINISH_TOOL in self._tools:
            raise InvalidArgument(
                f"Agent {name!r}: with an output type, no tool can be called {FINISH_TOOL!r}: rename it."
            )
        if state is not None and callable(state) and not isinstance(state, type):
            raise InvalidArgument(f"Agent {name!r}: state must be a dict, a schema or its instance, not {state!r}.")
        if history is not None and not callable(history):
            raise InvalidArgument(f"Agent {name!r}: history must be a function(messages, context), not {history!r}.")
        if limits is not None and not isinstance(limits, UsageLimits):
            raise InvalidArgument(f"Agent {name!r}: limits must be a UsageLimits, not {limits!r}.")
        choices = {"auto", "required", "none", *self._tools, *((FINISH_TOOL,) if output is not None else ())}
        if tool_choice not in choices and not self._toolsets:  # a toolset's names are known only at run time
            raise InvalidArgument(f"Agent {name!r}: tool_choice must be one of {sorted(choices)}, not {tool_choice!r}.")
        self._finish = _finish_spec(output) if output is not None else None
        self.initial_state()  # fail now, not in the first run, if the state type cannot be created

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name, including those of toolsets that are known so far."""
        if not self._toolsets:
            return self._tools
        return _merged(self.name, self._tools, [toolset.known for toolset in self._toolsets])

    async def refresh_tools(self) -> None:
        """Bring the toolsets up to date. Raises `ToolsUnavailable`, or `InvalidArgument` if names collide."""
        if self._toolsets:
            await asyncio.gather(*(toolset.refresh() for toolset in self._toolsets))
            _merged(self.name, self._tools, [toolset.offered for toolset in self._toolsets])

    def check_input(self, guard: Guard) -> Guard:
        """Decorate a function of a turn's messages: an exception ends the run before the model is called."""
        self.input_guards.append(_guard(self.name, guard))
        return guard

    def check_output(self, guard: Guard) -> Guard:
        """Decorate a function of the output: a `ModelRetry` sends it back to the model, other errors end the run."""
        self.output_guards.append(_guard(self.name, guard))
        return guard

    def tool_specs(self, state: Any = ...) -> list[ToolSpec]:
        """Return the tools as the model sees them, including the finish tool; with a state, only those offered in
        it."""
        offered = [*self._tools.values(), *(tool for each in self._toolsets for tool in each.offered.values())]
        specs = [tool.spec for tool in offered if state is ... or tool.is_offered(state)]
        return specs if self._finish is None else [*specs, self._finish]

    @property
    def has_static_instructions(self) -> bool:
        """Return whether the system prompt is the same in every state."""
        return isinstance(self._instructions, str)

    def instructions_for(self, state: Any) -> str:
        """Return the system prompt for a state."""
        if isinstance(self._instructions, str):
            return self._instructions
        try:
            text = self._instructions(state if self._instructions_see is None else view(state, self._instructions_see))
        except Exception as error:
            raise InvalidArgument(
                f"The instructions of agent {self.name!r} failed: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(text, str):
            raise InvalidArgument(f"The instructions of agent {self.name!r} returned {shown(text)}, not a string.")
        return text

    def initial_state(self) -> dict[str, Json]:
        """Return the custom state of a new session, a fresh copy."""
        return {} if self._state is None else initial_state(self._state)

    def ensure_state(self, state: dict[str, Any], base: dict[str, Any]) -> None:
        """Raise `InvalidArgument` if `state`, made from `base`, does not fit the type that was given as `state=`.

        A base that does not fit either was stored under an older version of the type: its fields can still be changed.
        """
        if self._state is None or isinstance(self._state, Mapping):
            return
        schema = self._state if isinstance(self._state, type) else type(self._state)
        try:
            ensure_fits(state, schema)
        except InvalidArgument as misfit:
            try:
                ensure_fits(base, schema)
            except InvalidArgument:
                return
            raise misfit

    def parse_output(self, arguments: Json) -> Json:
        """Convert the arguments of the finish tool to the output and check it. Raises `InvalidInput`."""
        if not _is_object_type(self.output):
            if not isinstance(arguments, dict) or set(arguments) != {"output"}:
                raise InvalidInput("Object with exactly the member 'output' expected")
            arguments = arguments["output"]
        return to_json(parse_as(arguments, self.output))

    def typed_output(self, output: Json) -> Output:
        """Return a stored output as the agent's output type. Raises `InvalidInput` if the type has changed since."""
        if self.output is None or output is None:
            plain: Output = output
            return plain
        try:
            typed: Output = convert(output, self.output)
        except InvalidInput as error:
            name = getattr(self.output, "__name__", self.output)
            raise InvalidInput(f"The stored output of agent {self.name!r} is not a {name}: {error}") from error
        return typed

    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        mode: SubSessionMode = "ephemeral",
        timeout_seconds: float | None = None,
    ) -> AgentTool:
        """Return this agent as a tool for another: every call is a child session with its own state and messages.

        `ephemeral`: a new child each call. `persistent`: one child whose conversation continues from call to call.
        """
        return AgentTool(self, name=name, description=description, mode=mode, timeout_seconds=timeout_seconds)


class AgentTool(Tool):
    """An agent as a tool; the executor runs it as a child session instead of calling a function."""

    def __init__(
        self,
        agent: Agent,
        *,
        name: str | None,
        description: str | None,
        mode: SubSessionMode,
        timeout_seconds: float | None,
    ) -> None:
        def ask(input: str) -> str:
            raise InvalidArgument(f"Agent {agent.name!r} as a tool can only be run by an executor.")

        super().__init__(
            ask,
            name=name or agent.name,
            description=description or agent.description or f"Ask the agent {agent.name!r}.",
            timeout_seconds=timeout_seconds,
        )
        self.agent = agent
        self.mode: SubSessionMode = mode


class AgentRegistry:
    """Agents by name, so that a process that has only a session id knows what to resume."""

    def __init__(self, agents: Iterable[Agent] = ()) -> None:
        agents = list(agents)
        self._agents: dict[str, Agent] = {}
        self.add(*agents)
        self.listed = tuple(dict.fromkeys(agent.name for agent in agents))
        """The names given here: neither sub-agents nor agents that were added later."""

    def add(self, *agents: Agent) -> None:
        """Add these agents and all agents that they use as tools, replacing agents of the same name."""
        named: dict[str, Agent] = {}
        waiting = list(agents)
        while waiting:
            agent = waiting.pop()
            if named.setdefault(agent.name, agent) is not agent:
                raise InvalidArgument(
                    f"Two different agents are named {agent.name!r}: rename one, since a session stores only "
                    "its agent's name."
                )
            waiting += (
                tool.agent
                for tool in agent.tools.values()
                if isinstance(tool, AgentTool) and named.get(tool.agent.name) is not tool.agent
            )
        self._agents.update(named)

    def get(self, name: str) -> Agent:
        """Return the agent of that name."""
        try:
            return self._agents[name]
        except KeyError:
            known = ", ".join(sorted(self._agents)) or "none"
            raise InvalidArgument(f"No agent {name!r} is registered (known: {known}): register it first.") from None

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def __contains__(self, name: str) -> bool:
        return name in self._agents


def _guard(agent: str, guard: Guard) -> Guard:
    if not callable(guard):
        raise InvalidArgument(f"Agent {agent!r}: a check must be a function, not {guard!r}.")
    return guard


def _by_name(agent: str, tools: Sequence[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise InvalidArgument(f"Agent {agent!r}: {tool!r} is not a tool: decorate it with @tool, or use as_tool().")
        if tool.name in named:
            raise InvalidArgument(f"Agent {agent!r} has two tools called {tool.name!r}: rename one.")
        named[tool.name] = tool
    return named


def _merged(agent: str, own: Mapping[str, Tool], others: Sequence[Mapping[str, Tool]]) -> dict[str, Tool]:
    merged = dict(own)
    for tools in others:
        if taken := merged.keys() & tools.keys():
            raise InvalidArgument(
                f"Agent {agent!r} has two tools called {sorted(taken)[0]!r}: give one of the toolsets a prefix."
            )
        merged.update(tools)
    return merged


def _is_object_type(kind: Any) -> bool:
    return bool(json_schema(kind).get("properties") is not None)


def _finish_spec(output: Any) -> ToolSpec:
    schema = json_schema(output)
    if not _is_object_type(output):
        definitions = schema.pop("$defs", None)
        schema = {"type": "object", "properties": {"output": schema}, "required": ["output"]}
        if definitions:
            schema["$defs"] = definitions
    return ToolSpec(FINISH_TOOL, "Give the final answer and end the run.", schema)
