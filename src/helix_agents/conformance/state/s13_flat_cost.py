"""S13: what a write costs does not depend on what is stored.

Measured in the bytes that the backend's verbs read and write, and in stored bytes where a harness counts them; never
by a clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ...stores.state.contract import StateStore
from ..expect import expect
from ..harness import STATE_STORE, Harness
from ..tools.faults import verbs_of
from ..tools.sample import add, meta, plain_state, push, put, user, writes

check = STATE_STORE.check

Act = Callable[[StateStore, str], Awaitable[Any]]


def weight(value: Any) -> int:
    """Return about how many bytes a value would take on the wire."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(weight(key) + weight(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(weight(item) for item in value)
    fields = getattr(value, "__struct_fields__", None)
    if fields is not None:
        return sum(weight(getattr(value, field)) for field in fields)
    return 1


async def weighed(store: StateStore, act: Act, session_id: str) -> int:
    """Return how many bytes pass between the store and its backend during an action, in both directions."""
    total = 0

    def wrapped(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal total
            answer = await verb(*args, **kwargs)
            total += weight(args) + weight(kwargs) + weight(answer)
            return answer

        return call

    for name in verbs_of(store):
        setattr(store, name, wrapped(getattr(store, name)))
    await act(store, session_id)
    return total


async def _big_session(store: StateStore, session_id: str, size: int) -> None:
    """Create a session whose history and state grow with `size`."""
    custom = {
        "items": [f"item {n}" for n in range(size)],
        "o": {f"member {n}": n for n in range(size)},
        "other": {"text": "x" * size * 10},
        "n": 1,
    }
    await store.create_session(session_id, agent_type="agent", custom_state=custom)
    await store.append_messages(session_id, [user("y" * 20)] * size)
    for step in (1, 2):
        await store.save_state_and_promote_staging(session_id, plain_state(session_id), [], meta(step, "step-3"))


async def _is_flat(harness: Harness, what: str, act: Act) -> None:
    maker = await harness.open()
    sizes = (20, 5000)
    costs: dict[int, int] = {}
    for size in sizes:
        session_id = f"session-{size}"
        await _big_session(maker, session_id, size)
        # A new store object without caches: its reads also count.
        costs[size] = await weighed(await harness.open(), act, session_id)
    small, large = costs[sizes[0]], costs[sizes[1]]
    expect(large <= small * 1.5 + 200, f"{what} moved {small} bytes in a small session and {large} in a big one")


@check("S13", "an append of messages costs the same in a long conversation")
async def append_is_flat(harness: Harness) -> None:
    await _is_flat(harness, "append_messages", lambda store, name: store.append_messages(name, [user("new")]))


@check("S13", "a merge costs the same beside a big state")
async def merge_is_flat(harness: Harness) -> None:
    ops = writes(push("items", items=["new"]), add("n"), put("o", "member 3", value=7), put("o", "new", value=1))
    await _is_flat(harness, "merge_custom_state", lambda store, name: store.merge_custom_state(name, ops))


@check("S13", "a commit costs the same after a long history and beside a big state")
async def commit_is_flat(harness: Harness) -> None:
    ops = writes(push("items", items=["new"]), add("n"), put("o", "new", value=1))

    async def act(store: StateStore, name: str) -> None:
        await store.stage_changes(name, "step-1", ops, tool_call_id="call-1")
        await store.save_state_and_promote_staging(name, plain_state(name), [user("new")], meta(3, "step-1"))

    await _is_flat(harness, "a commit", act)


@check("S13", "commits, appends and merges store only the bytes that changed, not what already exists")
async def written_is_flat(harness: Harness) -> None:
    store = await harness.open()
    ops = writes(push("items", items=["new"]), add("n"), put("o", "new", value=1))

    def commit(name: str) -> Awaitable[Any]:
        return store.save_state_and_promote_staging(name, plain_state(name), [user("new")], meta(3, "step-3"))

    acts: dict[str, Callable[[str], Awaitable[Any]]] = {
        "an append": lambda name: store.append_messages(name, [user("new")]),
        "a merge": lambda name: store.merge_custom_state(name, ops),
        "a commit": commit,
    }
    sizes = (20, 5000)
    for size in sizes:
        await _big_session(store, f"session-{size}", size)
    for what, act in acts.items():
        written = [await harness.written_bytes(partial(act, f"session-{size}")) for size in sizes]
        if written[0] is None or written[1] is None:
            return
        # A database writes whole pages; the big session takes several hundred thousand bytes.
        expect(
            written[1] <= written[0] * 2 + 65_536,
            f"{what} wrote {written[0]} bytes in a small session and {written[1]} in a big one",
        )


@check("S13", "a page of messages costs the same in a long conversation")
async def message_page_is_flat(harness: Harness) -> None:
    await _is_flat(harness, "get_messages", lambda store, name: store.get_messages(name, offset=-10, limit=10))


@check("S11", "a keyset page without a count costs the same among many sessions")
async def keyset_page_is_flat(harness: Harness) -> None:
    maker = await harness.open()
    costs = []
    for more in (20, 400):
        for number in range(more):
            await maker.create_session(f"s{more}-{number}", agent_type="agent", user_id="u")
        page = await maker.list_sessions(limit=5)

        async def act(store: StateStore, cursor: str, page_cursor: str | None = page.next_cursor) -> None:
            await store.list_sessions(user_id="u", limit=5, cursor=page_cursor, count=False)

        costs.append(await weighed(await harness.open(), act, ""))
    expect(costs[1] <= costs[0] * 1.5 + 200, f"a page moved {costs[0]} bytes among 20 sessions, {costs[1]} among 420")
