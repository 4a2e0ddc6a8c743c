"""A table of cells that fetches what a commit needs and writes what the planner says, and nothing else."""

from __future__ import annotations

from typing import Any

from helix_agents.backends.inmemory.sessions import CustomCells
from helix_agents.stores.state.cells import rebuild
from helix_agents.stores.state.commit import CheckpointRow, Commit, CustomChanges, Identity
from helix_agents.stores.state.plan import Counters, Plan, Seen, decide, needs

SESSION = "s"
CHECKPOINT = CheckpointRow("id", "step", 1, 0, "step", "{}")


class Table:
    """Cells and counters of one session."""

    def __init__(self) -> None:
        self.cells = CustomCells()
        self.session = Counters(1, 0, 0, 0, 0, 0, "active")

    def commit(self, changes: CustomChanges, *, checkpoint: bool = False) -> None:
        commit = Commit(
            session_id=SESSION, now=1, custom=changes, checkpoint=CHECKPOINT if checkpoint else None, messages=("m",)
        )
        plan = decide(commit, self.seen(commit))
        assert isinstance(plan, Plan)
        if plan.cells is not None:
            self.cells.write(plan.cells, plan.before)
        self.session = plan.after

    def seen(self, commit: Commit) -> Seen:
        seen, wanted, keys = Seen(), needs(commit), self.cells.keys
        seen.session, seen.identity = self.session, Identity("born", 1, "agent", None)
        # Exactly what is needed and no more, so that a plan that reads anything else fails.
        seen.cells = {name: cell for name in wanted.cells if (cell := self.cells.get(name)) is not None}
        seen.keys = {key: keys[key] for key in keys if wanted.everything or key in wanted.keys}
        seen.lists = {key: (keys[key][None].text, len(keys[key]) - 1) for key in wanted.lists if key in keys}
        return seen

    def state(self, number: int | None = None) -> dict[str, Any]:
        return rebuild((self.cells if number is None else self.cells.at(number)).all())
