"""Bad input is rejected with one of the library's errors, and nothing is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from ...errors import HelixError, InvalidArgument, NotSerializable, SessionNotFound
from ...state.writes import StepWrites
from ...stores.state.contract import StateStore
from ...types import PendingClientToolCall
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump
from ..tools.operations import OPERATIONS, prepare
from ..tools.sample import full_state, meta, nested, plain_state, push, put, ref, user, writes

check = STATE_STORE.check

Attempt = Callable[[], Awaitable[Any]]

BAD_IDS: tuple[Any, ...] = ("", "x" * 257, "a\nb", "a\x00b", "\x7f", "{a}", "a}", "{", "\ud800", None, 5, b"a", ["a"])


def _cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {"user": {}}
    value["user"]["callback"] = value
    return value


NOT_JSON: tuple[Any, ...] = (
    print,
    object(),
    {1, 2},
    b"bytes",
    float("nan"),
    float("inf"),
    1j,
    {1: "int key"},
    iter([1]),
)


def bad_values() -> list[dict[str, Any]]:
    """Return objects with something that is not JSON at `/user/callback`, including a cycle."""
    return [{"user": {"callback": bad}} for bad in NOT_JSON] + [_cyclic()]


def _on_missing_session(store: StateStore) -> dict[str, Attempt]:
    """Return a call of every method that needs a session, for one that does not exist."""
    skip = {"create_session", "delete_session", "update_run_status"}
    writing: dict[str, Attempt] = {
        name: partial(operation.run, store, "nobody") for name, operation in OPERATIONS.items() if name not in skip
    }
    return writing | {
        "list_staged": lambda: store.list_staged("nobody", "step-1"),
        "discard_staging of a step": lambda: store.discard_staging("nobody", "step-1"),
        "check_interrupt_flag": lambda: store.check_interrupt_flag("nobody"),
        "list_sub_session_refs": lambda: store.list_sub_session_refs("nobody"),
        "get_messages": lambda: store.get_messages("nobody"),
        "get_messages from the end": lambda: store.get_messages("nobody", offset=-5, limit=None),
        "get_message_count": lambda: store.get_message_count("nobody"),
        "list_runs": lambda: store.list_runs("nobody"),
        "list_checkpoints": lambda: store.list_checkpoints("nobody"),
        "append_messages of nothing": lambda: store.append_messages("nobody", []),
        "add_sub_session_refs of nothing": lambda: store.add_sub_session_refs("nobody", []),
        "merge_custom_state of nothing": lambda: store.merge_custom_state("nobody", writes()),
        "promote_staging of nothing": lambda: store.promote_staging("nobody", "step-1"),
        "restore_checkpoint": lambda: store.restore_checkpoint("nobody", "cpv1-nobody-s1-t1-aaaaaa"),
    }


@check("input", "every method that needs a session rejects one that does not exist")
async def unknown_session_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "there")
    before = await dump(store)
    for name, attempt in _on_missing_session(store).items():
        with raises(SessionNotFound, f"{name} of a missing session") as caught:
            await attempt()
        expect_same(getattr(caught.error, "session_id", None), "nobody", f"the id in the error of {name}")
    expect_same(await dump(store), before, "all data")


@check("input", "methods that may find nothing return None or False")
async def finding_nothing_is_an_answer(harness: Harness) -> None:
    store = await harness.open()
    expect(await store.load_state("nobody") is None, "load_state")
    expect(await store.get_checkpoint("nobody", "cpv1-nobody-s1-t1-aaaaaa") is None, "get_checkpoint")
    expect(await store.get_latest_checkpoint("nobody") is None, "get_latest_checkpoint")
    expect(await store.get_current_run("nobody") is None, "get_current_run")
    expect_same(await store.session_exists("nobody"), False, "session_exists")
    expect_same(await store.delete_session("nobody"), False, "delete_session")


def _calls_with_id(store: StateStore, bad: Any) -> dict[str, Attempt]:
    """Return every call that takes an id to store something under."""
    ops = writes(put("v", value=1))
    return {
        "create_session": lambda: store.create_session(bad, agent_type="agent"),
        "fork_session": lambda: store.fork_session("a", bad),
        "stage_changes, step": lambda: store.stage_changes("a", bad, ops, tool_call_id="call-1"),
        "stage_changes, call": lambda: store.stage_changes("a", "step-1", ops, tool_call_id=bad),
        "create_run": lambda: store.create_run("a", bad),
        "add_sub_session_refs": lambda: store.add_sub_session_refs("a", [ref("ok"), ref(bad)]),
        "a commit's step": lambda: store.save_state_and_promote_staging("a", plain_state("a"), [], meta(1, bad)),
    }


@check("input", "invalid ids of sessions, steps, calls and runs are rejected")
async def bad_ids_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    for bad in BAD_IDS:
        for name, attempt in _calls_with_id(store, bad).items():
            with raises(InvalidArgument, f"{name} with the id {bad!r:.40}"):
                await attempt()
    expect_same(await dump(store), before, "all data")


def _calls_with_json(store: StateStore, bad: Any) -> dict[str, Attempt]:
    """Return every call that takes a JSON value, each with the same bad one."""
    waiting = {"call-1": PendingClientToolCall("call-1", "tool", input=bad)}
    return {
        "create_session": lambda: store.create_session("new", agent_type="agent", custom_state=bad),
        "save_state, custom_state": lambda: store.save_state("a", plain_state("a", custom_state=bad)),
        "save_state, output": lambda: store.save_state("a", plain_state("a", output=bad)),
        "save_state, interrupt_context": lambda: store.save_state("a", plain_state("a", interrupt_context=bad)),
        "save_state, pending call": lambda: store.save_state("a", plain_state("a", pending_client_tool_calls=waiting)),
        "commit, custom_state": lambda: store.save_state_and_promote_staging(
            "a", plain_state("a", custom_state=bad), [], meta()
        ),
        "commit, output": lambda: store.save_state_and_promote_staging("a", plain_state("a", output=bad), [], meta()),
        "commit, message": lambda: store.save_state_and_promote_staging(
            "a", plain_state("a"), [user("fine"), user("bad", **bad)], meta()
        ),
        "append_messages": lambda: store.append_messages("a", [user("fine"), user("bad", **bad), user("fine")]),
        "stage_changes, replace": lambda: store.stage_changes(
            "a", "step-1", writes(put("v", value=bad)), tool_call_id="call-1"
        ),
        "stage_changes, append": lambda: store.stage_changes(
            "a", "step-1", writes(push("items", items=[1, bad])), tool_call_id="call-1"
        ),
        "stage_changes, result": lambda: store.stage_changes(
            "a", "step-1", writes(), tool_call_id="call-1", result=bad
        ),
        "merge_custom_state": lambda: store.merge_custom_state("a", writes(put("fine", value=1), put("v", value=bad))),
        "compare_and_set_status": lambda: store.compare_and_set_status("a", "active", "paused", interrupt_context=bad),
        "create_run": lambda: store.create_run("a", "new-run", metadata=bad),
        "update_run_status": lambda: store.update_run_status("run-of-a", "completed", output=bad),
        "add_sub_session_refs": lambda: store.add_sub_session_refs("a", [ref("fine"), ref("bad", remote=bad)]),
        "update_sub_session_ref": lambda: store.update_sub_session_ref("a", "sub-1", remote=bad),
    }


@check("input", "a value that is not JSON is rejected everywhere, with the pointer to it")
async def not_json_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    for bad in bad_values():
        for name, attempt in _calls_with_json(store, bad).items():
            with raises(NotSerializable, f"{name} with {bad['user']!r:.60}") as caught:
                await attempt()
            path = getattr(caught.error, "path", "")
            expect("/user/callback" in path, f"the error of {name} names {path!r}, not /user/callback")
            expect(path in str(caught.error), f"the message of the error of {name} does not name the pointer")
    expect_same(await dump(store), before, "all data")


@check("input", "values that are nested too deeply are rejected everywhere")
async def endless_nesting_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    for name, attempt in _calls_with_json(store, {"user": nested(5000)}).items():
        with raises(NotSerializable, f"{name} with a value nested 5000 deep"):
            await attempt()
    expect_same(await dump(store), before, "all data")


@check("input", "an invalid message is rejected, with everything in the same call")
async def bad_messages_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    bad_messages: list[Any] = [{}, {"content": "no role"}, {"role": 5}, {"role": None}, "text", None, ["role"], 7]
    for bad in bad_messages:
        with raises(InvalidArgument, f"append_messages with {bad!r}"):
            await store.append_messages("a", [user("fine"), bad])
        with raises(InvalidArgument, f"a commit with {bad!r}"):
            await store.save_state_and_promote_staging("a", plain_state("a"), [user("fine"), bad], meta())
    expect_same(await dump(store), before, "all data")


@check("input", "custom state that is not an object is rejected")
async def custom_state_is_an_object(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    for bad in ([], "text", 5, True, [{"a": 1}]):
        anything: Any = bad
        with raises(InvalidArgument, f"create_session with the custom state {bad!r}"):
            await store.create_session("new", agent_type="agent", custom_state=anything)
        with raises(InvalidArgument, f"save_state with the custom state {bad!r}"):
            await store.save_state("a", plain_state("a", custom_state=bad))
        with raises(InvalidArgument, f"a commit with the custom state {bad!r}"):
            await store.save_state_and_promote_staging("a", plain_state("a", custom_state=bad), [], meta())
    expect_same(await dump(store), before, "all data")


@check("input", "limits, offsets, counts and cursors out of range are rejected")
async def numbers_out_of_range_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    anything: Any
    for anything in (0, -1, 201, 10**9, "5", 1.5, None, True):
        with raises(InvalidArgument, f"list_sessions with the limit {anything!r}"):
            await store.list_sessions(limit=anything)
        with raises(InvalidArgument, f"list_checkpoints with the limit {anything!r}"):
            await store.list_checkpoints("a", limit=anything)
    for anything in (0, -1, "5", 1.5, True):
        with raises(InvalidArgument, f"get_messages with the limit {anything!r}"):
            await store.get_messages("a", limit=anything)
    for anything in (-1, "5", 1.5, None):
        with raises(InvalidArgument, f"list_sessions with the offset {anything!r}"):
            await store.list_sessions(offset=anything)
        with raises(InvalidArgument, f"list_checkpoints with the offset {anything!r}"):
            await store.list_checkpoints("a", offset=anything)
        with raises(InvalidArgument, f"truncate_messages to {anything!r}"):
            await store.truncate_messages("a", anything)
    for anything in ("5", 1.5, None):
        with raises(InvalidArgument, f"get_messages with the offset {anything!r}"):
            await store.get_messages("a", offset=anything)
    for anything in (-1, "5", 1.5, True):
        with raises(InvalidArgument, f"load_conversation of the last {anything!r}"):
            await store.load_conversation("a", last=anything)
        with raises(InvalidArgument, f"load_conversation from the offset {anything!r}"):
            await store.load_conversation("a", offset=anything)
    for anything in ("", "nonsense", "!!", "eyJ4IjoxfQ==", 5, "9" * 400):
        with raises(InvalidArgument, f"list_sessions with the cursor {anything!r:.20}"):
            await store.list_sessions(cursor=anything)
    expect_same(await dump(store), before, "all data")


def _calls_with_status(store: StateStore, bad: Any) -> dict[str, Attempt]:
    """Return every call that takes the status of a session."""
    state = plain_state("a", status=bad)
    return {
        "update_status": lambda: store.update_status("a", bad),
        "compare_and_set_status": lambda: store.compare_and_set_status("a", "active", bad),
        "compare_and_set_status from": lambda: store.compare_and_set_status("a", [bad], "paused"),
        "save_state": lambda: store.save_state("a", state),
        "commit": lambda: store.save_state_and_promote_staging("a", state, [], meta()),
        "list_sessions": lambda: store.list_sessions(status=[bad]),
    }


@check("input", "an unknown status is rejected everywhere")
async def bad_status_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    bad: Any
    for bad in ("", "running", "ACTIVE", None, 5):
        for name, attempt in _calls_with_status(store, bad).items():
            with raises(InvalidArgument, f"{name} with the status {bad!r}"):
                await attempt()
    for bad in ("", "nonsense", 5):
        with raises(InvalidArgument, f"list_sessions with the one status {bad!r}"):
            await store.list_sessions(status=bad)
    for bad in ("", "active", None, 5):
        with raises(InvalidArgument, f"update_run_status with {bad!r}"):
            await store.update_run_status("run-of-a", bad)
    expect_same(await dump(store), before, "all data")


@check("input", "only existing refs can be changed, and only in fields that they have")
async def bad_ref_changes_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    with raises(HelixError, "a change of an unknown ref"):
        await store.update_sub_session_ref("a", "sub-9", status="done")
    for changes in ({"colour": "red"}, {"mode": "eternal"}, {"completed_at": "soon"}, {"status": None}):
        with raises(InvalidArgument, f"a change of a ref by {changes}"):
            await store.update_sub_session_ref("a", "sub-1", **changes)
    expect_same(await dump(store), before, "all data")


@check("input", "session fields of the wrong type are rejected")
async def bad_fields_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    lies: list[dict[str, Any]] = [
        {"step_count": "5"},
        {"tags": (5,)},
        {"metadata": {"k": 5}},
        {"metadata": "text"},
        {"error": 5},
        {"expires_at": "soon"},
        {"user_id": 5},
        {"pending_client_tool_calls": {"call": "text"}},
        {"tracing_context": "text"},
    ]
    for lie in lies:
        state = msgspec.structs.replace(full_state("a"), **lie)
        with raises(InvalidArgument, f"save_state with {lie}"):
            await store.save_state("a", state)
        with raises(InvalidArgument, f"a commit with {lie}"):
            await store.save_state_and_promote_staging("a", state, [], meta())
    labels: list[dict[str, Any]] = [{"tags": [5]}, {"metadata": {"k": 5}}, {"expires_at": "soon"}, {"user_id": 5}]
    for number, anything in enumerate(labels):
        with raises(InvalidArgument, f"create_session with {anything}"):
            await store.create_session(f"new-{number}", agent_type="agent", **anything)
    expect_same(await dump(store), before, "all data")


def _calls_with_wrong_types(store: StateStore) -> dict[str, Attempt]:
    """Return calls with arguments of the wrong type, which one backend would fail on and another would store."""
    no: Any = 5
    nothing: Any = None
    return {
        "compare_and_set_status, error": lambda: store.compare_and_set_status("a", "active", "failed", error=no),
        "compare_and_set_status, failure_reason": lambda: store.compare_and_set_status(
            "a", "active", "failed", failure_reason=no
        ),
        "compare_and_set_status from nothing": lambda: store.compare_and_set_status("a", nothing, "failed"),
        "create_run, lease_until": lambda: store.create_run("a", "new-run", lease_until=-1),
        "create_run, metadata": lambda: store.create_run("a", "new-run", metadata=no),
        "update_run_status, step_count": lambda: store.update_run_status("run-of-a", "running", step_count=-1),
        "update_run_status, error": lambda: store.update_run_status("run-of-a", "running", error=no),
        "update_run_status, lease_until": lambda: store.update_run_status("run-of-a", "running", lease_until=2**64),
        "append_messages of no list": lambda: store.append_messages("a", no),
        "a commit of no list": lambda: store.save_state_and_promote_staging("a", plain_state("a"), nothing, meta()),
        "add_sub_session_refs of no list": lambda: store.add_sub_session_refs("a", no),
        "create_session, tags": lambda: store.create_session("new", agent_type="agent", tags=no),
        "list_sessions, tags": lambda: store.list_sessions(tags=[no]),
        "list_sessions, metadata": lambda: store.list_sessions(metadata={"k": no}),
        "list_sessions, user_id": lambda: store.list_sessions(user_id=no),
        "restore_checkpoint of nothing": lambda: store.restore_checkpoint("a", nothing),
        "merge_custom_state of no ops": lambda: store.merge_custom_state("a", StepWrites(no)),
    }


@check("input", "arguments of the wrong type are rejected")
async def bad_arguments_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    await store.save_state_and_promote_staging("a", plain_state("a"), [], meta())
    before = await dump(store)
    for name, attempt in _calls_with_wrong_types(store).items():
        with raises(InvalidArgument, name):
            await attempt()
    tuples = writes(put("v", value=(1, 2)))
    with raises(NotSerializable, "merge_custom_state with a tuple"):
        await store.merge_custom_state("a", tuples)
    with raises(NotSerializable, "stage_changes with a tuple"):
        await store.stage_changes("a", "step-1", tuples, tool_call_id="call-1")
    expect_same(await dump(store), before, "all data")
