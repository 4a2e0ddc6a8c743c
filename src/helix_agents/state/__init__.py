"""State tracking: draft -> marks -> writes -> merge and patch.

A tool changes a draft (`draft`, `dict_draft`, `list_draft`); `marks` remember where, `derive` reads what from the
final snapshot (`frozen`) and makes ops (`writes`). Stores merge ops (`merge`), the wire sends patches (`patch`, `diff`,
`sequencer`). All of it is pure: no clock, no I/O, no store.
"""

from __future__ import annotations

from .diff import diff
from .freeze import freeze
from .frozen import FrozenDict, FrozenList, thaw
from .merge import apply_step_writes, merge_step_writes
from .patch import apply_patch
from .pointer import to_pointer
from .sequencer import StepSequencer
from .tracker import StateTracker
from .typed import TypedState, ensure_fits, initial_state, view
from .writes import JsonPatch, Op, StepWrites, step_writes_to_rfc6902

__all__ = [
    "StateTracker",
    "StepWrites",
    "Op",
    "JsonPatch",
    "apply_step_writes",
    "merge_step_writes",
    "step_writes_to_rfc6902",
    "apply_patch",
    "diff",
    "StepSequencer",
    "FrozenDict",
    "FrozenList",
    "freeze",
    "thaw",
    "to_pointer",
    "view",
    "TypedState",
    "initial_state",
    "ensure_fits",
]
