"""OpenStep: a step whose reply is durable but not committed yet, with its outcomes so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...chunks import AnyChunk, ToolEnd, ToolStart
from ...codec import Json
from ...messages import Message, ToolCall
from ...state import StepSequencer
from ...types import StagedChanges
from .decisions import Outcome, StagedAnswer, StagedOutcome


class FinishedCall(NamedTuple):
    """A call that an earlier run finished."""

    call: ToolCall
    outcome: Outcome
    patches: list[dict[str, Any]]
    executed: bool


class OpenStep:
    """A step whose reply is durable but not committed yet."""

    def __init__(
        self, step_id: str, number: int, answer: Message, base: dict[str, Any], *, answer_is_stored: bool = False
    ) -> None:
        self.step_id = step_id
        self.number = number
        self.answer = answer
        self.answer_is_stored = answer_is_stored
        self.outcomes: dict[str, Outcome] = {}
        self.usage: list[dict[str, Any]] = []
        self.request: dict[str, Any] | None = None
        """The fingerprint of the model request."""
        self.rows: dict[str, StagedChanges] = {}
        """The staged form of each call that has an outcome."""
        self.unstaged: dict[str, StagedChanges] = {}
        """Rows not staged yet, by call ('': the reply), to be written with the next stage or the commit."""
        self.to_emit: dict[str, AnyChunk] = {}
        """Chunks by call, to be emitted once their rows are durable."""
        self.begun: dict[str, str | None] = {}
        """The durable intents by call or part (`part_id`), each with the approval id under which it was begun."""
        self.unknown: set[str] = set()
        """The calls and parts that may have taken effect but have no outcome."""
        self.looked_up: set[str] = set()
        """The calls of `unknown` whose check could not tell."""
        self.parts: dict[str, Json] = {}
        """The results of parts that happened."""
        self.deferred: dict[str, list[dict[str, Any]]] = {}
        """The patches of writes by the functions of deferred calls."""
        self.asks_about: dict[str, str] = {}
        """The part of a call that a person has to be asked about, by call."""
        self.before: list[Message] = []
        """Messages that precede the reply in the conversation: a summary made for its request."""
        self.sequencer = StepSequencer(base)

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The calls in the order of the model's message."""
        calls: Sequence[ToolCall] = self.answer.get("tool_calls", ())
        return calls

    def index_of(self, call_id: str) -> int:
        """Return the index of a call in the model's message."""
        return next(index for index, call in enumerate(self.calls) if call["id"] == call_id)

    @property
    def missing(self) -> list[ToolCall]:
        """The calls without an outcome."""
        return [call for call in self.calls if call["id"] not in self.outcomes]

    def load_staged(self, rows: Sequence[StagedChanges]) -> list[FinishedCall]:
        """Load staged rows; return the finished calls with the patches of their writes."""
        found: list[FinishedCall] = []
        by_id = {call["id"]: call for call in self.calls}
        for row in sorted(rows, key=lambda row: row.index):
            if row.kind == "summary":
                self.before = [row.result]
            elif row.kind == "answer":
                staged_answer = msgspec.convert(row.result, StagedAnswer)
                self.usage += staged_answer.usage
                self.request = staged_answer.request
            elif row.kind == "begun":
                self.begun[row.tool_call_id] = row.result["approval_id"]
            elif row.kind == "deferred":
                self.deferred[row.tool_call_id] = self.sequencer.accept(row.index, row.writes)
            elif row.kind == "part":
                self.parts[row.tool_call_id] = row.result["value"]
            elif row.tool_call_id in by_id:
                staged = msgspec.convert(row.result, StagedOutcome)
                self.outcomes[row.tool_call_id] = staged.outcome
                self.rows[row.tool_call_id] = row
                self.usage += staged.usage
                patches = self.sequencer.accept(row.index, row.writes)
                call = with_arguments(by_id[row.tool_call_id], staged.outcome.arguments)
                found.append(FinishedCall(call, staged.outcome, patches, staged.executed))
        self.unknown = {each for each in self.begun if each not in self.outcomes and each not in self.parts}
        return found


def part_id(call_id: str, name: str) -> str:
    """Return the row id of one part of a call."""
    return f"{call_id}.{name}"


def with_arguments(call: ToolCall, arguments: dict[str, Any] | None) -> ToolCall:
    """Return the call with the arguments that a person changed."""
    if arguments is None:
        return call
    changed: ToolCall = {**call, "arguments": arguments}
    return changed


def tool_start_chunk(call: ToolCall) -> ToolStart:
    """Return the chunk that announces the start of a call."""
    return {
        "type": "tool_start",
        "tool_call_id": call["id"],
        "tool_name": call["name"],
        "arguments": call["arguments"],
    }


def tool_end_chunk(call: ToolCall, outcome: Outcome) -> ToolEnd:
    """Return the chunk that announces the outcome of a call."""
    return {
        "type": "tool_end",
        "tool_call_id": call["id"],
        "tool_name": call["name"],
        "result": outcome.result,
        "success": outcome.success,
        "error": outcome.error,
    }
