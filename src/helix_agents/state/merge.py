"""Apply writes to a state: those of one tool, or those of parallel tools against one base.

The result depends only on the base and the op lists in the order of the tool calls, not on which tool finished first.
Three phases: all ensure/replace/delete, then all increments, then all appends; so increments add up, and appended items
survive what other tools did to the list. Bad ops do not raise: an op that cannot be applied, or that another tool
overwrites, is reported as a warning. The base may be sparse: only members on touched paths are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import NotSerializable
from .counting import incremented, is_number
from .diff import diff
from .editor import Editor, Misfit, fitting, member, put, remove
from .frozen import FrozenList, same_value, type_name
from .marks import MISSING
from .pointer import to_pointer
from .writes import AnyWrites, ParsedOp, StepWrites, parsed

Path = tuple[str | int, ...]

_PHASE = {"ensure": 0, "replace": 0, "delete": 0, "increment": 1, "append": 2}


def apply_step_writes(state: Any, writes: AnyWrites) -> tuple[Any, list[str]]:
    """Apply one op list in order; return the state, and a warning for every op that did not fit."""
    ops, warnings = parsed(writes)
    warnings = [*_carried(writes), *warnings]
    editor = Editor(state)
    for op in ops:
        try:
            apply_op(editor, op)
        except _DOES_NOT_FIT as error:
            warnings.append(f"Dropped {op}: {error}.")
    return editor.root, warnings


def merge_step_writes(base: Any, writes: Iterable[AnyWrites]) -> tuple[Any, list[str]]:
    """Merge the op lists of parallel tools in the given order; return the state, and a warning for every lost write."""
    merge = _Merge(base)
    for tool, one in enumerate(writes):
        merge.take(tool, one)
    merge.run()
    return merge.editor.root, merge.warnings


def _carried(writes: AnyWrites) -> Sequence[str]:
    return writes.warnings if isinstance(writes, StepWrites) else ()


class _Merge:
    def __init__(self, base: Any) -> None:
        self.editor = Editor(base)
        self.warnings: list[str] = []
        self.ops: list[tuple[int, ParsedOp]] = []
        self.overwriters: dict[Path, list[int]] = {}  # path -> the tools that replace or delete it
        self.last: dict[Path, tuple[int, ParsedOp]] = {}  # path -> who wrote it last so far

    def take(self, tool: int, writes: AnyWrites) -> None:
        ops, warnings = parsed(writes)
        self.warnings += [*_carried(writes), *warnings]
        for op in ops:
            self.ops.append((tool, op))
            if op.kind == "replace" or op.kind == "delete":
                self.overwriters.setdefault(op.path, []).append(tool)

    def run(self) -> None:
        for tool, op in sorted(self.ops, key=lambda entry: _PHASE[entry[1].kind]):  # stable: tool order within
            above = self._overwriters_above(tool, op.path)
            void = [(other, at) for other, at in above if any(token.__class__ is int for token in op.path[at:])]
            if void:
                other, at = void[0]
                self._warn(op, tool, f"tool {other} changed {_name(op.path[:at])}, positions below it mean nothing now")
                continue
            if above and _PHASE[op.kind] == 0:  # the other kinds apply to the result of these
                self._warn_overlap(tool, op, above)
            try:
                self._apply(tool, op)
            except _DOES_NOT_FIT as error:
                self._warn(op, tool, str(error))

    def _warn(self, op: ParsedOp, tool: int, reason: str) -> None:
        self.warnings.append(f"Dropped {op} of tool {tool}: {reason}.")

    def _overwriters_above(self, tool: int, path: Path) -> list[tuple[int, int]]:
        """Return the other tools that overwrite a container of `path`, each with the depth of that container."""
        if not self.overwriters:
            return []
        return [
            (other, at) for at in range(len(path)) for other in self.overwriters.get(path[:at], ()) if other != tool
        ]

    def _warn_overlap(self, tool: int, op: ParsedOp, above: list[tuple[int, int]]) -> None:
        other, at = max(above)
        if other > tool:
            self._warn(op, tool, f"tool {other} overwrote {_name(op.path[:at])}")
        elif op.kind != "ensure":
            old = self._present(op.path)
            if old is not MISSING and (op.kind == "delete" or diff(old, op.value)):
                self.warnings.append(f"{op} of tool {tool} changed what tool {other} wrote at {_name(op.path[:at])}.")

    def _present(self, path: Path) -> Any:
        try:
            return self.editor.find(path)
        except Misfit:
            return MISSING

    def _apply(self, tool: int, op: ParsedOp) -> None:
        if _PHASE[op.kind] == 0:
            writer, before = self.last.get(op.path, (tool, op))
            apply_op(self.editor, op)
            if op.kind == "ensure":
                self.last.setdefault(op.path, (tool, op))
                return
            self.last[op.path] = tool, op
            if writer != tool and _loses(before, op):
                self._warn(before, writer, f"tool {tool} wrote the same path later{_advice(before, op)}")
        else:
            apply_op(self.editor, op)


def _loses(before: ParsedOp, after: ParsedOp) -> bool:
    """Return whether the write `before` is lost when `after` follows at the same path."""
    if before.kind == "ensure":
        return before.value.__class__ is not after.value.__class__
    return before.kind != after.kind or not same_value(before.value, after.value)


def _advice(before: ParsedOp, after: ParsedOp) -> str:
    """Return advice for the case that two tools meant to count."""
    if not (is_number(before.value) and is_number(after.value)) or before.path[-1].__class__ is not str:
        return ""
    return f". To count in parallel tools write draft.increment({before.path[-1]!r}, 1)"


def _name(path: Path) -> str:
    return to_pointer(path) or "the whole state"


_DOES_NOT_FIT = (Misfit, NotSerializable)


def apply_op(editor: Editor, op: ParsedOp) -> None:
    """Apply one op. Raises one of `_DOES_NOT_FIT`, and changes nothing, if it does not fit."""
    if not op.path:
        editor.root = fitting(editor.root, op.value)  # a well-formed op without a path replaces the whole state
        return
    *above, last = op.path
    _ensure_place(editor.find(above), last)
    _APPLY[op.kind](editor, above, last, op.value)


def _ensure_place(parent: Any, token: str | int) -> None:
    """Check the last token: an object accepts any key, a list only existing positions."""
    if not isinstance(parent, dict) or token.__class__ is not str:
        member(parent, token)


def _replace(editor: Editor, above: list[str | int], token: Any, value: Any) -> None:
    put(editor.container(above), token, value)


def _delete(editor: Editor, above: list[str | int], token: Any, value: Any) -> None:
    parent = editor.find(above)
    if not isinstance(parent, dict):
        raise Misfit("only members of objects can be deleted")
    if token in parent:
        remove(editor.container(above), token)


def _increment(editor: Editor, above: list[str | int], token: Any, by: Any) -> None:
    parent = editor.find(above)
    old = parent.get(token, 0) if isinstance(parent, dict) else parent[token]
    try:
        new = incremented(old, by, lambda: to_pointer([*above, token]))
    except TypeError as error:
        raise Misfit(str(error).rstrip(".")) from None
    put(editor.container(above), token, new)


def _append(editor: Editor, above: list[str | int], token: Any, items: FrozenList) -> None:
    parent = editor.find(above)
    if isinstance(parent, dict) and token not in parent:
        put(editor.container(above), token, items)
        return
    if not isinstance(parent[token], list):
        raise Misfit(f"a {type_name(parent[token])} is not a list")
    target = editor.container([*above, token])
    list.extend(target, fitting(target, items))


def _ensure(editor: Editor, above: list[str | int], token: Any, value: Any) -> None:
    parent = editor.find(above)
    if isinstance(parent, dict) and token not in parent:
        put(editor.container(above), token, value)
    elif isinstance(parent[token], dict) is not isinstance(value, dict) or not isinstance(parent[token], dict | list):
        raise Misfit(f"there is a value of another type, {type_name(parent[token])}")


_APPLY = {"replace": _replace, "delete": _delete, "append": _append, "increment": _increment, "ensure": _ensure}
