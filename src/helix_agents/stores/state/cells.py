"""Convert custom state between the JSON object that users see and the cells that backends store.

Pure: no store, no clock. Merging works on a **sparse** base, which holds only the cells that the writes touch, so the
cost of a merge follows the writes and not the rest of the state. The cells it was computed from become guards of the
commit: if another writer was faster, the backend rejects the commit, and the caller reads and merges again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...codec import Json, decode, encode
from ...state import Op, StepWrites, apply_step_writes, freeze, merge_step_writes, to_pointer
from .commit import LIST, OBJECT, CellName, CellTexts, CustomChanges, KeyContent
from .commuting import CommutingWrites, as_commuting, combine_commuting, commuting_changes, content_of


def replacement(custom_state: Mapping[str, Json]) -> CustomChanges:
    """Return the changes that replace custom state by this value."""
    return CustomChanges(replace_all=True, set_keys={key: content_of(value) for key, value in custom_state.items()})


def rebuild(keys: Iterable[tuple[str, str, Iterable[str]]]) -> dict[str, Json]:
    """Return custom state, given its keys: the name, the text, and for a list the texts of its items, for an object
    `name:text`.

    Names are also JSON texts, so that everything can be decoded as one text.
    """
    parts = []
    for name, text, below in keys:
        if text == LIST:
            text = f"[{','.join(below)}]"
        elif text == OBJECT:
            text = f"{{{','.join(below)}}}"
        parts.append(f"{name}:{text}")
    state: dict[str, Json] = decode(f"{{{','.join(parts)}}}")
    return state


class PreparedWrites(NamedTuple):
    """The writes of tools in order, prepared for merging as far as possible without the current state."""

    writes: tuple[StepWrites, ...]
    touched: frozenset[CellName]
    """The cells that the merge must know."""
    commuting: CommutingWrites | None
    """The same writes in a form that needs no merge, if they commute."""


def prepare(writes: StepWrites) -> PreparedWrites:
    """Prepare the writes of one tool for a merge."""
    commuting = as_commuting(writes)
    touched = _touched_cells(writes) if commuting is None else commuting.touched
    return PreparedWrites((writes,), touched, commuting)


def combine(parts: Sequence[PreparedWrites]) -> PreparedWrites:
    """Combine the writes of several tools, in this order."""
    if len(parts) == 1:
        return parts[0]
    writes = tuple([each for part in parts for each in part.writes])
    touched = frozenset[CellName]().union(*[part.touched for part in parts])
    return PreparedWrites(writes, touched, combine_commuting(part.commuting for part in parts))


def _touched_cells(writes: StepWrites) -> frozenset[CellName]:
    names: set[CellName] = set()
    for kind, path in _targets(writes):
        if len(path) > 1:
            names.add(CellName(path[0], path[1]))
        elif kind == "replace" or not path:
            continue  # whatever was there goes
        names.add(CellName(path[0]))
    return frozenset(names)


def _targets(writes: StepWrites) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield kind and path of every op with a valid path."""
    return (target for op in writes.ops if (target := _target(op)) is not None)


def _target(op: Op) -> tuple[str, Sequence[Any]] | None:
    """Return kind and path of an op; None if the merge will drop it with a warning."""
    path = op["path"] if "path" in op else [op.get("key")]
    if not isinstance(path, list | tuple):
        return None
    if not path:
        return ("replace", path) if op.get("kind") == "replace" and isinstance(op.get("value"), dict) else None
    if not isinstance(path[0], str) or (len(path) > 1 and path[1].__class__ not in (str, int)):
        return None
    return op.get("kind", ""), path


def plan_merge(ready: PreparedWrites, known: CellTexts, *, in_order: bool = False) -> tuple[CustomChanges, list[str]]:
    """Return the changes and warnings of merging the writes into the state that `known` describes.

    `in_order`: one list, applied op by op as it came (`merge_custom_state`), instead of a merge of parallel tools.
    """
    if ready.commuting is not None:
        changes = commuting_changes(ready.commuting, known)
        if changes is not None:
            return changes, []
    return merge_cells(ready.writes, known, in_order=in_order)


def merge_cells(writes: Sequence[StepWrites], known: CellTexts, *, in_order: bool) -> tuple[CustomChanges, list[str]]:
    """Return the changes and warnings for any writes, like `plan_merge`."""
    base = freeze(_sparse_base(known))
    if in_order:
        (only,) = writes
        within, beyond = _within_the_base(only, known)
        result, warnings = apply_step_writes(base, within)
        warnings += beyond
    else:
        result, warnings = merge_step_writes(base, writes)
    if not isinstance(result, dict):
        return CustomChanges(), [
            *warnings,
            "The writes replace custom state with a value that is not an object: dropped.",
        ]
    overwritten = _overwritten_keys(writes)
    if overwritten is None:
        return msgspec.structs.replace(replacement(result), expected=known), warnings
    return _difference(base, result, overwritten, known), warnings


def _sparse_base(known: CellTexts) -> dict[str, Json]:
    base: dict[str, Json] = {}
    for (key, slot), text in known.items():
        if slot is None and text is not None:
            base[key] = [] if text == LIST else {} if text == OBJECT else decode(text)
    for (key, slot), text in known.items():
        if text is None or slot is None:
            continue
        holder = base.get(key)
        if isinstance(slot, int) and isinstance(holder, list):
            # Lists are dense: if this item exists, so do those before it, and the merge does not read them.
            holder.extend([None] * (slot + 1 - len(holder)))
            holder[slot] = decode(text)
        elif isinstance(slot, str) and isinstance(holder, dict):
            holder[slot] = decode(text)
        # Otherwise the cells were read at different times and are inconsistent: the guard will reject the commit.
    return base


def _within_the_base(writes: StepWrites, known: CellTexts) -> tuple[StepWrites, list[str]]:
    """Drop writes at a position past the end of a stored list; return the rest, and a warning for each dropped one.

    Positions are those of the base. A sparse base does not show how long a list is: after an append such a position
    would hit a wrong item.
    """
    ops: list[Op] = []
    warnings: list[str] = []
    stored = {key for (key, slot), text in known.items() if slot is None and text == LIST}
    for op in writes.ops:
        match _target(op):
            case "replace", []:
                stored.clear()
            case "replace" | "delete", [key]:
                stored.discard(key)
            case kind, [key, slot, *_] as path if key in stored and known[CellName(key, slot)] is None:
                warnings.append(f"Dropped {kind} {to_pointer(path)}: there is no item {slot!r}.")
                continue
        ops.append(op)
    return StepWrites(ops, writes.warnings), warnings


def _overwritten_keys(writes: Iterable[StepWrites]) -> set[str] | None:
    """Return the top-level keys whose whole value a write sets or deletes; None if a write replaces the root."""
    keys: set[str] = set()
    for each in writes:
        for kind, path in _targets(each):
            if not path:
                return None
            if len(path) == 1 and kind in ("replace", "delete"):
                keys.add(path[0])
    return keys


def _difference(
    base: dict[str, Json], result: dict[str, Json], overwritten: set[str], known: CellTexts
) -> CustomChanges:
    set_keys: dict[str, KeyContent] = {}
    drop_keys: list[str] = []
    set_cells: dict[CellName, str] = {}
    drop_cells: list[CellName] = []
    append: dict[str, tuple[str, ...]] = {}
    for key in base:
        if key not in result:
            drop_keys.append(key)
    for key, new in result.items():
        old = base.get(key, _ABSENT)
        if new is old:
            continue
        if key in overwritten or type(old) is not type(new) or not isinstance(old, list | dict):
            set_keys[key] = content_of(new)
        elif isinstance(old, list):
            set_cells |= {
                CellName(key, index): encode(new[index]) for index, item in enumerate(old) if new[index] is not item
            }
            if len(new) > len(old):
                append[key] = tuple(map(encode, new[len(old) :]))
        else:
            set_cells |= {
                CellName(key, name): encode(member)
                for name, member in new.items()
                if member is not old.get(name, _ABSENT)
            }
            drop_cells += [CellName(key, name) for name in old if name not in new]
    return CustomChanges(
        expected=known,
        set_keys=set_keys,
        drop_keys=tuple(drop_keys),
        set_cells=set_cells,
        drop_cells=tuple(drop_cells),
        append=append,
    )


_ABSENT: Any = object()
