"""Custom state between its two shapes: the JSON object that users see and the cells that backends keep.

Pure: no store, no clock. Merging works on a **sparse** base, which holds only the cells that the writes touch, so the
cost of a merge follows the writes and not the rest of the state. The cells it was computed from become guards of the
commit: if another writer was faster, the backend refuses and the caller reads and merges again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..codec import Json, decode, encode
from ..state import Op, StepWrites, apply_step_writes, freeze, merge_step_writes, to_pointer
from .commit import LIST, OBJECT, CellName, CustomChanges, KeyContent, Slot

CellTexts = Mapping[CellName, str | None]
"""What is known of some cells; None: known to be absent."""


def content_of(value: Json) -> KeyContent:
    """The cells of one top-level key."""
    if isinstance(value, list):
        return KeyContent(LIST, items=tuple(map(encode, value)))
    if isinstance(value, dict):
        return KeyContent(OBJECT, members=tuple((name, encode(member)) for name, member in value.items()))
    return KeyContent(encode(value))


def replacement(custom_state: Mapping[str, Json]) -> CustomChanges:
    """The changes that make custom state exactly this."""
    return CustomChanges(replace_all=True, set_keys={key: content_of(value) for key, value in custom_state.items()})


def rebuild(cells: Iterable[tuple[str, Slot, str]]) -> dict[str, Json]:
    """Custom state from all of its cells; the items of a list must come in order. One decode for the lot."""
    containers: dict[str, list[str]] = {}
    whole: dict[str, str] = {}
    for key, slot, text in cells:
        if slot is None:
            whole[key] = text
        elif isinstance(slot, int):
            containers.setdefault(key, []).append(text)
        else:
            containers.setdefault(key, []).append(f"{encode(slot)}:{text}")
    parts = []
    for key, text in whole.items():
        if text == LIST:
            text = "[" + ",".join(containers.get(key, ())) + "]"
        elif text == OBJECT:
            text = "{" + ",".join(containers.get(key, ())) + "}"
        parts.append(f"{encode(key)}:{text}")
    state: dict[str, Json] = decode("{" + ",".join(parts) + "}")
    return state


def touched_cells(writes: Iterable[StepWrites]) -> set[CellName]:
    """The cells that must be known before these writes can be merged."""
    names: set[CellName] = set()
    for kind, path in _targets(writes):
        if len(path) > 1:
            names.add(CellName(path[0], path[1]))
        elif kind == "replace" or not path:
            continue  # whatever was there goes
        names.add(CellName(path[0]))
    return names


def _targets(writes: Iterable[StepWrites]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Kind and path of every op that has a usable one."""
    return (target for each in writes for op in each.ops if (target := _target(op)) is not None)


def _target(op: Op) -> tuple[str, Sequence[Any]] | None:
    """Kind and path of an op; None if the merge will drop it, with a warning."""
    path = op["path"] if "path" in op else [op.get("key")]
    if not isinstance(path, list | tuple):
        return None
    if not path:
        return ("replace", path) if op.get("kind") == "replace" and isinstance(op.get("value"), dict) else None
    if not isinstance(path[0], str) or (len(path) > 1 and path[1].__class__ not in (str, int)):
        return None
    return op.get("kind", ""), path


def planned_changes(
    writes: Sequence[StepWrites], known: CellTexts, *, in_order: bool = False
) -> tuple[CustomChanges, list[str]]:
    """The changes and warnings of merging `writes` into the state that `known` tells of.

    `in_order`: one list, applied op by op as it came (`merge_custom_state`), instead of a merge of parallel tools.
    """
    composed = _composed(writes, known)
    if composed is not None:
        return composed, []
    base = freeze(_sparse_base(known))
    if in_order:
        (only,) = writes
        within, beyond = _within_the_base(only, known)
        result, warnings = apply_step_writes(base, within)
        warnings += beyond
    else:
        result, warnings = merge_step_writes(base, list(writes))
    if not isinstance(result, dict):
        return CustomChanges(), [*warnings, "The writes replace custom state by something that is no object: dropped."]
    overwritten = _overwritten_keys(writes)
    if overwritten is None:
        return msgspec.structs.replace(replacement(result), expected=dict(known)), warnings
    return _difference(base, result, overwritten, known), warnings


def _composed(writes: Iterable[StepWrites], known: CellTexts) -> CustomChanges | None:
    """The changes, if all writes are increments and appends of top-level keys that hold numbers and lists.

    These are what most tools write, and their order does not matter to each other: there is nothing to merge and
    nothing to warn of. None if anything else is among them.
    """
    counters: dict[str, int] = {}
    appended: dict[str, list[str]] = {}
    for each in writes:
        if each.warnings:
            return None
        for op in each.ops:
            path, kind = op.get("path"), op.get("kind")
            if path.__class__ is not list or len(path) != 1 or path[0].__class__ is not str:
                return None
            key = path[0]
            text = known.get(CellName(key))
            if kind == "append" and text == LIST and isinstance(items := op.get("items"), list):
                appended.setdefault(key, []).extend(map(encode, items))
            elif kind == "increment" and text is not None and _is_whole(text) and op.get("by").__class__ is int:
                counters[key] = counters.get(key, int(text)) + op["by"]
                if not -_EXACT < counters[key] < _EXACT:
                    return None
            else:
                return None
    return CustomChanges(
        expected=dict(known),
        set_keys={key: KeyContent(str(count)) for key, count in counters.items()},
        append={key: tuple(texts) for key, texts in appended.items() if texts},
    )


_EXACT = 2**53
"""Counters below it are whole and exact everywhere; the merge knows about the others."""


def _is_whole(text: str) -> bool:
    return len(text) < 17 and text.lstrip("-").isdigit()


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
            # Lists are dense: if this item is there, so are those before it, and nobody looks at those.
            holder.extend([None] * (slot + 1 - len(holder)))
            holder[slot] = decode(text)
        elif isinstance(slot, str) and isinstance(holder, dict):
            holder[slot] = decode(text)
        # Else the cells were read at different times and contradict each other: the guard will refuse the commit.
    return base


def _within_the_base(writes: StepWrites, known: CellTexts) -> tuple[StepWrites, list[str]]:
    """The writes without those at a position behind the end of a stored list, and a warning for each of these.

    A sparse base does not tell how long a list is: after an append such a position would hit an item nobody meant.
    """
    ops: list[Op] = []
    warnings: list[str] = []
    grown: set[str] = set()  # keys of stored lists that an earlier one of these writes appended to
    for op in writes.ops:
        kind, path = _target(op) or ("", ())
        if not path or (len(path) == 1 and kind in ("replace", "delete")):
            grown.difference_update(path or tuple(grown))
        elif len(path) == 1 and kind == "append" and known[CellName(path[0])] == LIST:
            grown.add(path[0])
        elif path[0] in grown and path[1:] and known.get(CellName(path[0], path[1])) is None:
            warnings.append(f"Dropped {kind} {to_pointer(path)}: there is no item {path[1]!r}.")
            continue
        ops.append(op)
    return StepWrites(ops, writes.warnings), warnings


def _overwritten_keys(writes: Iterable[StepWrites]) -> set[str] | None:
    """Top-level keys whose whole value some write sets or deletes; None if a write replaces the root."""
    keys: set[str] = set()
    for kind, path in _targets(writes):
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
        expected=dict(known),
        set_keys=set_keys,
        drop_keys=tuple(drop_keys),
        set_cells=set_cells,
        drop_cells=tuple(drop_cells),
        append=append,
    )


_ABSENT: Any = object()


def known_after(changes: CustomChanges) -> dict[CellName, str | None]:
    """What the writer of these changes has learnt once they are stored, beside what he expected."""
    known: dict[CellName, str | None] = {CellName(key): content.text for key, content in changes.set_keys.items()}
    for key in changes.drop_keys:
        known[CellName(key)] = None
    known.update(changes.set_cells)
    for name in changes.drop_cells:
        known[name] = None
    return known
