"""The one sequencing point of a step: what the wire shows while tools write in parallel.

Each tool has its own tracker and its own view of positions, so patches that tools sent on their own would drift apart.
Here the client is always shown the merge of everything so far, as the difference from what it was shown before; so the
last patch ends exactly at the state that the commit will store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .counting import is_number
from .diff import diff
from .editor import Editor, Misfit
from .freeze import freeze
from .merge import Path, merge_step_writes
from .pointer import to_pointer
from .writes import AnyWrites, JsonPatch, parsed


class StepSequencer:
    """Turns the writes of parallel tools, whenever they arrive, into one sequence of patches."""

    __slots__ = ("_base", "_growing", "_shared", "_writes", "state", "warnings")

    def __init__(self, base: dict[str, Any]) -> None:
        self._base = freeze(base)
        self._writes: dict[int, AnyWrites] = {}
        self._growing: dict[int, Callable[[], AnyWrites]] = {}
        self._shared = False
        self.state = self._base
        """What the client has been shown."""
        self.warnings: list[str] = []
        """The lost writes of the merge so far."""

    def accept(self, tool_index: int, writes: AnyWrites) -> JsonPatch:
        """Take all that a tool has written up to now (it replaces what was taken before); return what to send."""
        self._growing.pop(tool_index, None)
        self._writes[tool_index] = writes
        return self._advance()

    def grow(
        self, tool_index: int, patches: JsonPatch, state: dict[str, Any], writes: Callable[[], AnyWrites]
    ) -> JsonPatch:
        """Take one more update of a tool: its patches, the tool's state after it, and how to get all of its writes.

        As long as no other tool has written, the tool's state is the merge, so the update costs what it changed. From
        then on all writes are merged.
        """
        self._growing[tool_index] = writes
        self._shared = self._shared or any(index != tool_index for index in (*self._writes, *self._growing))
        if not self._shared and tool_index not in self._writes:
            self.state = state
            return patches
        return self._advance()

    def finish(self, tool_index: int, writes: AnyWrites) -> JsonPatch:
        """Take all that a tool has written, now that it has ended."""
        if self._growing.pop(tool_index, None) is not None and not self._shared:
            self._writes[tool_index] = writes
            return []
        return self.accept(tool_index, writes)

    def withdraw(self, tool_index: int) -> JsonPatch:
        """Forget a tool that failed; return the patches that take back what it had shown."""
        self._writes.pop(tool_index, None)
        self._growing.pop(tool_index, None)
        return self._advance()

    def likely_lost_counts(self) -> list[str]:
        """A sentence for each number that several tools replaced by the same other number.

        To the merge equal values are no conflict. But who reads 0 and writes 1 in five parallel tools has most likely
        meant to count to five, and must hear of it.
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

    def _advance(self) -> JsonPatch:
        writes = self._writes | {index: read() for index, read in self._growing.items()}
        # Tools that have written nothing yet keep their number, so that warnings name the right one.
        in_order = [writes.get(tool_index, ()) for tool_index in range(max(writes, default=-1) + 1)]
        state, self.warnings = merge_step_writes(self._base, in_order)
        patch = diff(self.state, state)
        self.state = state
        return patch


def _value_at(state: Any, path: Path) -> Any:
    try:
        return Editor(state).find(path)
    except Misfit:
        return None
