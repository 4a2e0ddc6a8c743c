"""Values at the limits of what is allowed: the same result on every backend, because shared code checks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from string import ascii_letters
from typing import Any

import msgspec

from ...errors import HelixError, InvalidArgument, NotSerializable
from ...stores.state.contract import StateStore
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump
from ..tools.operations import prepare
from ..tools.sample import meta, nested, plain_state, put, ref, user, writes

check = STATE_STORE.check

Attempt = Callable[[], Awaitable[Any]]

ODD_VERSIONS: tuple[Any, ...] = ("1", True, 1.0, -1, 2**63, 2**70, 10**5000, [1])
ODD_COUNTS: tuple[Any, ...] = (2**53, 2**63 - 1, 2**63, 10**20, 10**5000, nested(1000))
ODD_IDS: tuple[str, ...] = ("", "\ud800", "a\x00b", "x" * 257)
EMOJI = [chr(code) for code in range(0x1F600, 0x1F650)]
PAIR = "\ud83d\ude00"
"""Both halves of an emoji as separate characters."""


@check("input", "an expected version that is not a valid version is rejected, whatever is stored")
async def odd_versions_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    done = await store.save_state_and_promote_staging("a", plain_state("a"), [], meta())
    before = await dump(store)
    for odd in ODD_VERSIONS:
        for name, attempt in _calls_with_version(store, done.checkpoint_id, odd).items():
            with raises(InvalidArgument, f"{name} with the expected version {_named(odd)}"):
                await attempt()
    expect_same(await dump(store), before, "all data")


def _calls_with_version(store: StateStore, checkpoint_id: str, odd: Any) -> dict[str, Attempt]:
    return {
        "save_state": lambda: store.save_state("a", plain_state("a"), expected_version=odd),
        "a commit": lambda: store.save_state_and_promote_staging(
            "a", plain_state("a"), [user("no")], meta(2, "step-2"), expected_version=odd
        ),
        "compare_and_set_status": lambda: store.compare_and_set_status(
            "a", ["active", "failed"], "paused", expected_version=odd
        ),
        "restore_checkpoint": lambda: store.restore_checkpoint("a", checkpoint_id, expected_version=odd),
    }


@check("input", "numbers too large for one backend are rejected by all of them")
async def numbers_beyond_counting_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    for odd in ODD_COUNTS:
        for name, attempt in _calls_with_number(store, odd).items():
            with raises(InvalidArgument, f"{name} with {_named(odd)}"):
                await attempt()
    expect_same(await dump(store), before, "all data")


def _calls_with_number(store: StateStore, odd: Any) -> dict[str, Attempt]:
    return {
        "list_sessions, offset": lambda: store.list_sessions(offset=odd),
        "list_sessions, limit": lambda: store.list_sessions(limit=odd),
        "list_sessions, created_from": lambda: store.list_sessions(created_from=odd),
        "list_checkpoints, offset": lambda: store.list_checkpoints("a", offset=odd),
        "get_messages, offset": lambda: store.get_messages("a", offset=odd),
        "get_messages, limit": lambda: store.get_messages("a", limit=odd),
        "truncate_messages": lambda: store.truncate_messages("a", odd),
        "create_session, expires_at": lambda: store.create_session("new", agent_type="agent", expires_at=odd),
        "create_run, start_sequence": lambda: store.create_run("a", "new-run", start_sequence=odd),
        "stage_changes, index": lambda: store.stage_changes("a", "s", writes(), tool_call_id="c", index=odd),
        "save_state, step_count": lambda: store.save_state("a", plain_state("a", step_count=odd)),
        "a commit's step_count": lambda: store.save_state_and_promote_staging("a", plain_state("a"), [], meta(odd)),
    }


@check("input", "filters that no session could match are rejected")
async def odd_filters_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    for odd in ODD_IDS:
        for name in ("user_id", "agent_type", "parent_session_id"):
            anything: Any = {name: odd}
            with raises(InvalidArgument, f"list_sessions with the {name} {odd!r:.20}"):
                await store.list_sessions(**anything)
        with raises(InvalidArgument, f"list_sessions with the tag {odd!r:.20}"):
            await store.list_sessions(tags=[odd])
    for odd in ("\ud800", "a\x00b"):
        with raises(InvalidArgument, f"get_checkpoint of {odd!r}"):
            await store.get_checkpoint("a", odd)
    expect_same((await store.list_sessions(metadata={"\ud800": "a\x00b"})).items, [], "sessions with odd metadata")


@check("S11", "an empty list of statuses matches no session")
async def no_status_fits_nothing(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    page = await store.list_sessions(status=[])
    expect_same((page.items, page.total, page.has_more), ([], 0, False), "the page")
    expect_same((await store.list_sessions(status=(), count=False)).total, None, "the total without counting")


@check("input", "integers and strings that do not survive JSON encoding are rejected, with the pointer to them")
async def inexact_values_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    for odd, what in ((10**5000, "an integer of 5,000 digits"), (PAIR, "a surrogate pair in two characters")):
        for name, attempt in _calls_with_value(store, odd).items():
            with raises(NotSerializable, f"{name} with {what}"):
                await attempt()
    with raises(NotSerializable, "a key") as caught:
        await store.append_messages("a", [user("x", parts=[{"deep": {"n": 10**5000}}])])
    expect("/parts/0/deep/n" in str(caught.error), f"the message names no pointer: {caught.error}")
    expect_same(await dump(store), before, "all data")


def _calls_with_value(store: StateStore, odd: Any) -> dict[str, Attempt]:
    return {
        "create_session": lambda: store.create_session("new", agent_type="agent", custom_state={"v": odd}),
        "save_state": lambda: store.save_state("a", plain_state("a", custom_state={"v": [odd]})),
        "save_state, output": lambda: store.save_state("a", plain_state("a", output=odd)),
        "append_messages": lambda: store.append_messages("a", [user("fine"), user("x", value=odd)]),
        "a commit": lambda: store.save_state_and_promote_staging("a", plain_state("a"), [user("x", v=odd)], meta()),
        "merge_custom_state": lambda: store.merge_custom_state("a", writes(put("v", value=odd))),
        "stage_changes": lambda: store.stage_changes("a", "step-1", writes(put("v", value=odd)), tool_call_id="c"),
        "stage_changes, result": lambda: store.stage_changes("a", "step-1", writes(), tool_call_id="c", result=odd),
        "create_run": lambda: store.create_run("a", "new-run", metadata={"v": odd}),
        "update_run_status": lambda: store.update_run_status("run-of-a", "completed", output=odd),
        "compare_and_set_status": lambda: store.compare_and_set_status("a", "active", "paused", interrupt_context=odd),
    }


@check("input", "a string that JSON encoding would change is rejected in every field, and nothing is stored")
async def inexact_texts_are_refused_everywhere(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("s", agent_type="agent", custom_state={"o": {}, "l": []})
    await store.create_run("s", "run")
    await store.add_sub_session_refs("s", [ref("child")])
    before = await dump(store, "s")
    state = plain_state("s", custom_state=None)
    attempts: dict[str, Attempt] = {
        "a key": lambda: store.create_session("new", agent_type="a", custom_state={PAIR: 1}),
        "a key below": lambda: store.create_session("new", agent_type="a", custom_state={"o": {PAIR: 1}}),
        "a merged key": lambda: store.merge_custom_state("s", writes(put(PAIR, value=1))),
        "a merged member": lambda: store.merge_custom_state("s", writes(put("o", PAIR, value=1))),
        "a member of a merged value": lambda: store.merge_custom_state("s", writes(put("w", value={PAIR: 1}))),
        "an error": lambda: store.save_state("s", msgspec.structs.replace(state, error=PAIR)),
        "a failure reason": lambda: store.save_state("s", msgspec.structs.replace(state, failure_reason=PAIR)),
        "a swapped error": lambda: store.compare_and_set_status("s", "active", "failed", error=PAIR),
        "the reason of a flag": lambda: store.set_interrupt_flag("s", PAIR),
        "the error of a run": lambda: store.update_run_status("run", "failed", error=PAIR),
        "the name of a ref": lambda: store.update_sub_session_ref("s", "child", name=PAIR),
    }
    for what, attempt in attempts.items():
        with raises(HelixError, f"a surrogate pair in two characters as {what}"):
            await attempt()
        expect(not await store.session_exists("new"), f"{what} was rejected, and the session exists")
        expect_same(await dump(store, "s"), before, f"the session after {what}")
    expect(await store.merge_custom_state("s", writes(put("o", ["x"], value=1))), "an invalid path had no warning")
    expect_same((await store.load_state("s")).custom_state, {"o": {}, "l": []}, "the state")  # type: ignore[union-attr]


@check("input", "an invalid argument gets a readable error, however deep or long it is")
async def monstrous_arguments_are_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    monsters: list[Any] = [nested(5000), 10**5000, "x" * 100_000]
    for monster in monsters:
        for name, attempt in _calls_with_huge_value(store, monster).items():
            with raises(InvalidArgument, f"{name} of {_named(monster)}") as caught:
                await attempt()
            expect(len(str(caught.error)) < 2000, f"the message about {name} has {len(str(caught.error))} characters")
    expect_same(await dump(store), before, "all data")


def _calls_with_huge_value(store: StateStore, m: Any) -> dict[str, Attempt]:
    return {
        "a message without a role": lambda: store.append_messages("a", [{"role": None, "content": m}]),
        "a session id": lambda: store.load_state(m),
        "a status": lambda: store.update_status("a", m),
        "a cursor": lambda: store.list_sessions(cursor=m),
        "a tag": lambda: store.create_session("new", agent_type="agent", tags=[m]),
        "metadata": lambda: store.create_session("new", agent_type="agent", metadata={"k": m}),
        "a ref": lambda: store.update_sub_session_ref("a", "sub-1", mode=m),
    }


@check("input", "labels have the same limit on every backend, and up to it they are stored and found")
async def labels_have_a_limit(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    attempts: dict[str, Attempt] = {
        "1,001 tags": lambda: store.create_session("new", agent_type="agent", tags=[f"t{n}" for n in range(1001)]),
        "1,001 entries of metadata": lambda: store.create_session(
            "new", agent_type="agent", metadata={f"k{n}": "v" for n in range(1001)}
        ),
        "a metadata key of 257 characters": lambda: store.create_session(
            "new", agent_type="agent", metadata={"k" * 257: "v"}
        ),
        "a metadata value of 10,001 characters": lambda: store.create_session(
            "new", agent_type="agent", metadata={"k": "v" * 10_001}
        ),
        "a saved state with 1,001 tags": lambda: store.save_state(
            "a", plain_state("a", tags=tuple(f"t{n}" for n in range(1001)))
        ),
    }
    for name, attempt in attempts.items():
        with raises(InvalidArgument, name):
            await attempt()
    expect_same(await dump(store), before, "all data")
    tags = [f"tag-{n}" for n in range(1000)]
    await store.create_session("tagged", agent_type="agent", tags=tags)
    found = await store.list_sessions(tags=[tags[0], tags[-1]])
    expect_same([each.session_id for each in found.items], ["tagged"], "sessions with the tags")
    large = {_noise(256): _noise(10_000), _noise(256, EMOJI): _noise(256, EMOJI)}
    await store.create_session("labelled", agent_type="agent", metadata=large)
    for key, text in large.items():
        found = await store.list_sessions(metadata={key: text})
        expect_same([each.session_id for each in found.items], ["labelled"], "sessions with the metadata")


@check("input", "ids of 256 characters of any kind are accepted everywhere")
async def longest_ids_are_taken(harness: Harness) -> None:
    store = await harness.open()
    name = _noise(256, EMOJI)
    await store.create_session(name, agent_type=name, user_id=name, tags=[name], stream_id=name)
    await store.stage_changes(name, name, writes(put("v", value=1)), tool_call_id=name)
    expect_same(len(await store.list_staged(name, name)), 1, "staged rows")
    await store.create_run(name, name)
    done = await store.save_state_and_promote_staging(
        name, plain_state(name, agent_type=name, user_id=name), [user("x")], meta(1, name)
    )
    found = await store.get_checkpoint(name, done.checkpoint_id)
    expect(found is not None and found.state.custom_state == {"v": 1}, "the checkpoint holds the staged write")


def _noise(length: int, alphabet: Sequence[str] = ascii_letters) -> str:
    """Return a string that no database can compress."""
    chosen = Random(length)
    return "".join(chosen.choice(alphabet) for _ in range(length))


def _named(value: Any) -> str:
    try:
        return f"{value!r:.30}"
    except (HelixError, ValueError, RecursionError):
        return f"a monstrous {type(value).__name__}"
