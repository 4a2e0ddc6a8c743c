"""Order the state patches of a step's parallel tools into one sequence for clients.

Each tool has its own tracker and its own view of positions, so patches sent by each tool independently would drift
apart. Instead, each patch is the difference between the merge of all writes so far and what the client was shown
before; the last patch ends exactly at the state that the commit will store.

As long as tools write to different places, an update costs what it changes: it is applied directly. Where two tools
write to the same place, everything written under that key of the state is merged again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from .counting import is_number
from .diff import diff
from .editor import Editor, Misfit
from .freeze import freeze
from .frozen import FrozenDict
from .merge import Path, apply_op, merge_step_writes
from .pointer import to_pointer
from .touches import Touches
from .writes import AnyWrites, JsonPatch, Op, ParsedOp, parsed, step_writes_to_rfc6902

WritesUnder = Callable[[Collection[str] | None], AnyWrites]
"""Returns all writes of a tool up to now; with keys, only those under these keys of the state."""


class StepSequencer:
    """Turns the writes of parallel tools, in any order of arrival, into one sequence of patches."""

    __slots__ = ("_base", "_growing", "_mixed", "_touches", "_whole", "_writes", "state", "warnings")

    def __init__(self, base: dict[str, Any]) -> None:
        self._base = freeze(base)
        self._writes: dict[int, AnyWrites] = {}
        self._growing: dict[int, WritesUnder] = {}
        self._touches = Touches()
        self._mixed: set[str] = set()
        """The keys under which the writes of different tools conflict."""
        self._whole = False
        """Whether a tool has written the state as a whole."""
        self.state = self._base
        """The state that the client has been shown."""
        self.warnings: list[str] = []
        """The lost writes of all tools that have ended."""

    def accept(self, tool_index: int, writes: AnyWrites) -> JsonPatch:
        """Replace the recorded writes of a tool by all its writes up to now; return the patches to send."""
        self._forget(tool_index)
        self._writes[tool_index] = writes
        for op in parsed(writes)[0]:
            self._touch(tool_index, op)
        return self._advance()

    def grow(self, tool_index: int, ops: Iterable[Op], state: dict[str, Any], writes: WritesUnder) -> JsonPatch:
        """Record one more update of a tool: its ops, the tool's state after it, and how to get all of its writes."""
        if self._writes.pop(tool_index, None) is not None:
            self._touches.forget(tool_index)
        self._growing[tool_index] = writes
        new, _ = parsed(list(ops))
        free = [op for op in new if self._touch(tool_index, op)]
        if self._touches.is_alone(tool_index):
            self.state = state
            return step_writes_to_rfc6902([op.op for op in new])
        if self._whole:
            return self._advance()
        return self._made(free) + self._merged({key for op in new if (key := str(op.path[0])) in self._mixed})

    def finish(self, tool_index: int, writes: AnyWrites) -> JsonPatch:
        """Record the final writes of a tool that has ended."""
        if self._touches.is_alone(tool_index) and self._growing.pop(tool_index, None) is not None:
            self._writes[tool_index] = writes
            return []
        return self.accept(tool_index, writes)

    def withdraw(self, tool_index: int) -> JsonPatch:
        """Drop a tool that failed; return the patches that revert what it had shown."""
        self._forget(tool_index)
        return self._advance()

    def take_back(self) -> JsonPatch:
        """Drop all tools, because the step will not be committed; return the patches back to the stored state."""
        for tool_index in {*self._writes, *self._growing}:
            self._forget(tool_index)
        return self._advance()

    def likely_lost_counts(self) -> list[str]:
        """Return a warning for each number that several tools replaced by the same other number.

        To the merge, equal values are not a conflict. But five parallel tools that read 0 and write 1 most likely meant
        to count to five.
        """
        tools: dict[tuple[Path, Any], list[int]] = {}
        for tool_index in sorted(self._writes):
            for op in parsed(self._writes[tool_index])[0]:
                if op.kind == "replace" and op.path and is_number(op.value):
                    tools.setdefault((op.path, op.value), []).append(tool_index)
        return [
            f"Tools {', '.join(map(str, found))} all replaced {old} by {value} at {to_pointer(path)}: if they meant to "
            f"count, only one counted. Write draft.increment({path[-1]!r}, {value - old!r}) to add up."
            for (path, value), found in tools.items()
            if len(found) > 1 and is_number(old := _value_at(self._base, path))
        ]

    def _forget(self, tool_index: int) -> None:
        self._writes.pop(tool_index, None)
        self._growing.pop(tool_index, None)
        self._touches.forget(tool_index)

    def _touch(self, tool_index: int, op: ParsedOp) -> bool:
        """Record where a write goes; return whether no other tool writes there."""
        free = self._touches.add(tool_index, op.path, ensures=op.kind == "ensure")
        if not op.path:
            self._whole = True
            return False
        key = str(op.path[0])
        if free and op.kind == "ensure":
            there = _value_at(self.state, op.path)
            free = there is None or there.__class__ is op.value.__class__
        if not free:
            self._mixed.add(key)
        return key not in self._mixed

    def _made(self, ops: list[ParsedOp]) -> JsonPatch:
        """Apply ops that conflict with no others to what was shown."""
        editor = Editor(self.state)
        shown: list[Op] = []
        for op in ops:
            if op.kind != "ensure" or _value_at(editor.root, op.path) is None:
                apply_op(editor, op)
                shown.append(op.op)
        self.state = editor.root
        return step_writes_to_rfc6902(shown)

    def _merged(self, keys: set[str]) -> JsonPatch:
        """Merge all writes under these keys again and return what changed."""
        if not keys:
            return []
        base = FrozenDict({key: self._base[key] for key in keys if key in self._base})
        merged, _ = merge_step_writes(base, self._in_order(keys))
        before = {key: self.state[key] for key in keys if key in self.state}
        rest = {key: value for key, value in self.state.items() if key not in keys}
        self.state = FrozenDict({**rest, **merged})
        return diff(before, merged)

    def _advance(self) -> JsonPatch:
        """Merge everything again."""
        state, self.warnings = merge_step_writes(self._base, self._in_order(None))
        patch = diff(self.state, state)
        self.state = state
        return patch

    def _in_order(self, keys: Collection[str] | None) -> list[AnyWrites]:
        """Return the writes of all tools. A tool that wrote nothing keeps its number, so that warnings name the right
        tool."""
        found = {index: _under(keys, writes) for index, writes in self._writes.items()}
        found |= {index: read(keys) for index, read in self._growing.items()}
        return [found.get(tool_index, ()) for tool_index in range(max(found, default=-1) + 1)]


def _under(keys: Collection[str] | None, writes: AnyWrites) -> AnyWrites:
    return writes if keys is None else [op.op for op in parsed(writes)[0] if op.path and op.path[0] in keys]


def _value_at(state: Any, path: Path) -> Any:
    try:
        return Editor(state).find(path)
    except Misfit:
        return None
