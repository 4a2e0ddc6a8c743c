"""What a random walk does next: calls with random arguments, mostly valid, some rejected because of what is stored.

Arguments that a store must always reject (bad ids, bad JSON) have their own checks and do not occur here.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ....stores.state.commit import RunChange
from ....types import (
    BranchPoint,
    CheckpointMeta,
    Owner,
    ParentCall,
    PendingClientToolCall,
    RunRecord,
    SessionState,
    SubSessionRef,
)
from ...tools.dump import STEPS
from ...tools.sample import plain_state, ref, writes
from .store import ModelStore

NAMES = ("a", "b", "ünï/~ 😀", "d")
"""Few ids, so that calls collide."""

KEYS = ("l0", "l1", "n0", "o0", "v0", "", "~/")
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    1.0,
    2.5,
    "text",
    "\x00\ud800",
    [],
    {},
    [1, [2], {"k": 3}],
    {"l0": [1], "n0": 1, "o0": {"v0": None}},
    ["a", "b"],
)
STATUSES = ("active", "paused", "interrupted", "completed", "failed", "suspended_client_tool")
RUN_STATUSES = ("running", "running", "completed", "failed", "interrupted", "suspended_client_tool")


@dataclass
class Call:
    """One operation: a method, its arguments, and the sessions to look at afterwards."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    touches: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = [repr(arg) for arg in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.method}({', '.join(given)})"


class Choices:
    """Random calls, guided by what the model holds."""

    def __init__(self, chance: random.Random, model: ModelStore) -> None:
        self._chance = chance
        self._model = model
        self._runs = 0
        self._branches = 0
        self._menu: list[tuple[int, Callable[[str], Call]]] = [
            (6, self._create),
            (1, lambda name: Call("delete_session", (name,), {"owner": self._owner(name)}, touches=NAMES)),
            (6, self._save),
            (14, self._commit),
            (12, self._stage),
            (2, lambda name: Call("list_staged", (name, self._step()))),
            (3, lambda name: Call("promote_staging", (name, self._step()))),
            (1, lambda name: self._owned(name, "discard_staging", self._chance.choice([None, *STEPS]))),
            (8, lambda name: self._owned(name, "append_messages", self._messages())),
            (14, lambda name: self._owned(name, "merge_custom_state", self._writes())),
            (2, lambda name: self._owned(name, "update_status", self._chance.choice(STATUSES))),
            (2, lambda name: Call("increment_step_count", (name,))),
            (2, lambda name: Call("increment_resume_count", (name,))),
            (4, self._swap),
            (2, self._flag),
            (1, lambda name: Call("check_interrupt_flag", (name,))),
            (1, lambda name: self._owned(name, "clear_interrupt_flag")),
            (3, lambda name: self._owned(name, "add_sub_session_refs", self._refs())),
            (2, self._change_ref),
            (3, self._read_messages),
            (1, lambda name: self._owned(name, "truncate_messages", self._chance.randint(0, 12))),
            (4, self._list),
            (3, self._due),
            (3, self._run),
            (3, self._change_run),
            (2, self._list_checkpoints),
            (2, lambda name: Call("get_checkpoint", (name, self._checkpoint(name)))),
            (1, lambda name: Call("get_latest_checkpoint", (name,))),
            (3, self._restore),
            (3, self._fork),
            (6, self._branch),
            (5, self._switch),
        ]

    def call(self) -> Call:
        """Return the next call; it may change any session that exists by then, so all of them are named."""
        name = self._chance.choice(NAMES)
        weights = [weight for weight, _ in self._menu]
        ((_, make),) = self._chance.choices(self._menu, weights)
        call = make(name)
        call.touches = call.touches or (name,)
        return call

    # -- calls

    def _owned(self, name: str, method: str, *args: Any) -> Call:
        return Call(method, (name, *args), {"owner": self._owner(name)})

    def _create(self, name: str) -> Call:
        labels: dict[str, Any] = {
            "agent_type": self._chance.choice(("x", "y")),
            "custom_state": self._object() if self._chance.random() < 0.7 else None,
            "parent_session_id": self._parent(),
            "user_id": self._chance.choice((None, "u", "v")),
            "tags": self._tags(),
            "metadata": self._metadata(),
            "expires_at": self._chance.choice((None, 5, 10)),
        }
        return Call("create_session", (name,), labels)

    def _save(self, name: str) -> Call:
        cut = {"keep_messages": self._chance.randint(0, 12), "messages": self._messages()}
        options = {**self._guards(name), **(cut if self._chance.random() < 0.2 else {})}
        return Call("save_state", (name, self._state(name)), options)

    def _commit(self, name: str) -> Call:
        counts = self._chance.randint(0, 50), self._chance.randint(0, 1000)
        meta = CheckpointMeta(self._step(), *counts)
        state = self._state(name) if self._chance.random() < 0.5 else self._same_state(name)
        return Call(
            "save_state_and_promote_staging",
            (name, state, self._messages(), meta),
            self._guards(name),
        )

    def _guards(self, name: str) -> dict[str, Any]:
        """Return a version, and sometimes a run that starts and another one that ends or gets a new lease."""
        options: dict[str, Any] = {
            "expected_version": self._version(name),
            "owner": self._owner(name),
            "new_epoch": self._epoch(name),
        }
        known = self._model.sessions.get(name)
        if self._chance.random() < 0.3:
            self._runs += 1
            turn, lease = self._chance.choice((0, 0, 1, 2)), self._chance.choice((None, 0, 5))
            options["run"] = RunRecord(f"run-{self._runs}", name, turn, lease_until=lease, **self._details())
        if known and known.runs and self._chance.random() < 0.4:
            seen = self._chance.choice(known.runs)
            lease = self._chance.choice((0, 5, 9)) if seen.lease_until is None else seen.lease_until + 1
            changes: dict[str, Any] = {"lease_until": lease, **self._details()}
            if seen.status == "running" and self._chance.random() < 0.5:
                changes = {"status": "interrupted", "error": "replaced", "completed_at": 8}
            elif self._chance.random() < 0.3:
                seen = msgspec.structs.replace(seen, lease_until=lease)  # not what is stored
            options["change_run"] = RunChange(seen, msgspec.structs.replace(seen, **changes))
        return options

    def _details(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "attempt": self._chance.randint(1, 3),
            "resumes": self._chance.choice((None, "run-0")),
            "limits": self._value(),
            "follow_up": self._messages(),
            "queued": self._chance.choice((False, True)),
            "parent_call": self._chance.choice((None, ParentCall("call", self._value(), "run-0"))),
        }
        chosen = self._chance.sample(list(options), self._chance.randint(0, 2))
        return {name: options[name] for name in chosen}

    def _stage(self, name: str) -> Call:
        where = {"tool_call_id": f"call-{self._chance.randint(0, 3)}", "index": self._chance.randint(0, 3)}
        return Call(
            "stage_changes",
            (name, self._step(), self._writes()),
            {**where, "result": self._value(), "owner": self._owner(name)},
        )

    def _swap(self, name: str) -> Call:
        expected = self._chance.sample(STATUSES, self._chance.randint(1, 4))
        extra = {"interrupt_context": self._value(), "error": self._chance.choice((None, "e")), "failure_reason": None}
        new = self._chance.choice(STATUSES)
        guards = {"expected_version": self._version(name), "owner": self._owner(name)}
        return Call("compare_and_set_status", (name, expected, new), {**extra, **guards})

    def _flag(self, name: str) -> Call:
        return Call(
            "set_interrupt_flag",
            (name, self._chance.choice((None, "r"))),
            {"run_id": self._chance.choice((None, "q")), "abort": self._chance.choice((False, True))},
        )

    def _change_ref(self, name: str) -> Call:
        changes: dict[str, Any] = {"status": self._chance.choice(("x", "y")), "owner": self._owner(name)}
        known = self._model.sessions.get(name)
        ids = list(known.refs) if known else []
        return Call("update_sub_session_ref", (name, self._chance.choice(ids)), changes) if ids else self._add_ref(name)

    def _add_ref(self, name: str) -> Call:
        return Call("add_sub_session_refs", (name, self._refs()))

    def _read_messages(self, name: str) -> Call:
        offset, limit = self._chance.randint(-10, 10), self._chance.choice((None, 1, 3, 50))
        return Call("get_messages", (name,), {"offset": offset, "limit": limit})

    def _due(self, name: str) -> Call:
        statuses = self._chance.choice((None, self._chance.sample(STATUSES, 2)))
        types = self._chance.choice((None, ["x"]))
        return Call("list_claimable", (self._chance.choice((4, 2**52)),), {"status": statuses, "agent_types": types})

    def _list(self, name: str) -> Call:
        filters: dict[str, Any] = {
            "user_id": "u",
            "agent_type": "x",
            "status": self._chance.sample(STATUSES, 2),
            "parent_session_id": self._parent(),
            "tags": self._tags(),
            "metadata": self._metadata(),
            "expires_before": self._chance.choice((6, 11)),
        }
        chosen = self._chance.sample(list(filters), self._chance.randint(0, 2))
        page = {"limit": self._chance.randint(1, 4), "offset": self._chance.randint(0, 3)}
        count = self._chance.random() < 0.5
        return Call("list_sessions", (), {**{key: filters[key] for key in chosen}, **page, "count": count})

    def _run(self, name: str) -> Call:
        if self._chance.random() < 0.8:
            self._runs += 1
        return Call("create_run", (name, f"run-{self._runs}"), {"start_sequence": self._runs, "metadata": {"m": 1}})

    def _change_run(self, name: str) -> Call:
        run_id = f"run-{self._chance.randint(max(0, self._runs - 6), self._runs)}"
        changes = {"step_count": self._chance.choice((None, 4)), "output": self._value(), "completed_at": 7}
        status = self._chance.choice(RUN_STATUSES)
        return Call("update_run_status", (run_id, status), changes, touches=NAMES)

    def _list_checkpoints(self, name: str) -> Call:
        page = {"limit": self._chance.randint(1, 5), "offset": self._chance.randint(0, 5)}
        return Call("list_checkpoints", (name,), page)

    def _restore(self, name: str) -> Call:
        target = self._checkpoint(name)
        guards = {"expected_version": self._version(name), "owner": self._owner(name), "new_epoch": self._epoch(name)}
        return Call("restore_checkpoint", (name, target), guards)

    def _fork(self, name: str) -> Call:
        new = self._chance.choice(NAMES)
        target = self._checkpoint(name) if self._chance.random() < 0.6 else None
        return Call("fork_session", (name, new), {"checkpoint_id": target}, touches=(name, new))

    def _branch(self, name: str) -> Call:
        known = self._model.sessions.get(name)
        kept, target = self._chance.randint(0, len(known.messages) if known else 3), self._checkpoint(name)
        fitting = [it for it in known.checkpoints if it.message_count >= kept] if known else []
        if fitting and self._chance.random() < 0.9:
            target = fitting[0].checkpoint_id
        self._branches += 1
        point = BranchPoint(f"branch-{self._branches}", target, kept, self._chance.choice((None, "m")))
        state = msgspec.structs.replace(self._state(name), custom_state=None)
        meta = CheckpointMeta(self._step(), self._chance.randint(0, 50), kind="turn")
        return Call("branch_session", (name, point, state, self._messages(), meta), self._guards(name))

    def _switch(self, name: str) -> Call:
        known = self._model.sessions.get(name)
        ids = [it.branch_id for it in known.branches.listed(0)] if known else []
        guards = self._guards(name)
        guards.pop("run", None)
        if self._chance.random() < 0.3:
            guards["append_messages"] = self._messages()
        return Call("switch_branch", (name, self._chance.choice((*ids, *ids, "branch-0"))), guards)

    # -- arguments

    def _step(self) -> str:
        return self._chance.choice(STEPS)

    def _value(self) -> Any:
        # A copy, because a deep copy preserves that two members share one list.
        return copy.deepcopy(self._chance.choice(VALUES))

    def _object(self) -> dict[str, Any]:
        return {key: self._value() for key in self._chance.sample(KEYS, self._chance.randint(0, 4))}

    def _parent(self) -> str | None:
        return self._chance.choice((None, None, None, *NAMES))

    def _tags(self) -> list[str]:
        return self._chance.sample(("t", "u", "ü"), self._chance.randint(0, 2))

    def _metadata(self) -> dict[str, str]:
        return {key: self._chance.choice("12") for key in self._chance.sample(("k", "l"), self._chance.randint(0, 2))}

    def _messages(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self._value()} for _ in range(self._chance.randint(0, 3))]

    def _refs(self) -> list[SubSessionRef]:
        ids = self._chance.sample(range(4), self._chance.randint(0, 2))
        return [ref(f"sub-{number}", remote=self._value(), started_at=number + 1) for number in ids]

    def _version(self, name: str) -> int | None:
        known = self._model.sessions.get(name)
        right = known.state.version if known else 1
        return self._chance.choice((None, None, right, right, right - 1, right + 1))

    def _checkpoint(self, name: str) -> str:
        known = self._model.sessions.get(name)
        if known and known.checkpoints and self._chance.random() < 0.9:
            return self._chance.choice(known.checkpoints).checkpoint_id
        return "cpv1-nothing-s1-t1-aaaaaa"

    def _same_state(self, name: str) -> SessionState:
        known = self._model.sessions.get(name)
        return msgspec.structs.replace(known.state, custom_state=None) if known else plain_state(name)

    def _state(self, name: str) -> SessionState:
        return msgspec.structs.replace(
            self._same_state(name),
            custom_state=self._object() if self._chance.random() < 0.3 else None,
            status=self._chance.choice(STATUSES),
            output=self._value(),
            error=self._chance.choice((None, "e")),
            pending_client_tool_calls=self._chance.choice(({}, {"c": PendingClientToolCall("c", "ask")})),
            **self._identity(name),
            tags=tuple(self._tags()),
            metadata=self._metadata(),
            parent_session_id=self._parent(),
            step_count=self._chance.randint(0, 9),
            expires_at=self._chance.choice((None, 5, 10)),
        )

    def _identity(self, name: str) -> dict[str, Any]:
        """Return, sometimes, a changed field that cannot change, or none where a state may omit it."""
        if self._chance.random() < 0.9:
            return {}
        lies = ({"user_id": "w"}, {"agent_type": "z"}, {"created_at": 7}, {"incarnation": "other"})
        return self._chance.choice((*lies, {"created_at": 0}, {"incarnation": ""}))

    def _owner(self, name: str) -> Owner | None:
        """Return mostly none or the right owner, sometimes one that has lost the session."""
        known = self._model.sessions.get(name)
        if known is None or self._chance.random() < 0.7:
            return None
        born, epoch = known.state.incarnation, known.state.owner_epoch
        return self._chance.choice((Owner(born), Owner(born, epoch), Owner(born, epoch + 1), Owner("other", epoch)))

    def _epoch(self, name: str) -> int | None:
        known = self._model.sessions.get(name)
        if known is None or self._chance.random() < 0.7:
            return None
        return max(1, known.state.owner_epoch + self._chance.choice((0, 1, 1, 3)))

    def _writes(self) -> Any:
        return writes(*(self._op() for _ in range(self._chance.randint(0, 4))))

    def _op(self) -> dict[str, Any]:
        path = [self._chance.choice(KEYS)]
        while len(path) < 4 and self._chance.random() < 0.35:
            path.append(self._chance.choice((*KEYS, 0, 1, 2)))  # type: ignore[arg-type]  # keys and positions
        kind = self._chance.choice(("replace", "replace", "delete", "append", "append", "increment", "ensure"))
        rest: dict[str, Any] = {
            "replace": {"value": self._value()},
            "delete": {},
            "append": {"items": [self._value() for _ in range(self._chance.randint(0, 3))]},
            "increment": {"by": self._chance.choice((1, -2, 0.5)), "value": 0},
            "ensure": {"value": self._chance.choice(([], {}))},
        }[kind]
        return {"kind": kind, "path": path, **rest}
