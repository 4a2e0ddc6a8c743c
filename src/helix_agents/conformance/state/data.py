"""Plain data round-trips unchanged."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import NotSerializable
from ...types import SessionState
from ..expect import expect_same, plain
from ..harness import STATE_STORE, Harness, readers
from ..tools.sample import (
    AWKWARD_TEXTS,
    AWKWARD_VALUES,
    awkward_state,
    full_state,
    meta,
    nested,
    plain_state,
    push,
    put,
    ref,
    user,
    writes,
)

check = STATE_STORE.check

NOT_WRITTEN = ("version", "created_at", "updated_at", "interrupt_flag", "incarnation", "owner_epoch")


@check("data", "every field of a session round-trips, by save and by commit")
async def every_field_round_trips(harness: Harness) -> None:
    store = await harness.open()
    labels: dict[str, Any] = {"agent_type": "agent-ünï 😀", "user_id": "user 'x' 😀"}
    for session_id in ("saved", "committed"):
        await store.create_session(session_id, **labels)
    await store.save_state("saved", msgspec.structs.replace(full_state("saved"), **labels))
    committed = msgspec.structs.replace(full_state("committed"), **labels)
    await store.save_state_and_promote_staging("committed", committed, [], meta(committed.step_count))
    async for reader in readers(harness, store):
        for session_id in ("saved", "committed"):
            loaded = await reader.load_state(session_id)
            assert loaded is not None
            expected = msgspec.structs.replace(full_state(session_id), **labels)
            for field in SessionState.__struct_fields__:
                if field not in NOT_WRITTEN:
                    expect_same(getattr(loaded, field), getattr(expected, field), f"the field {field} ({session_id})")


@check("data", "every field of a session can be set back to its default")
async def every_field_can_be_unset(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.save_state("a", full_state("a"))
    bare = plain_state("a", custom_state={})
    await store.save_state("a", bare)
    loaded = await store.load_state("a")
    assert loaded is not None
    for field in SessionState.__struct_fields__:
        if field not in NOT_WRITTEN:
            expect_same(getattr(loaded, field), getattr(bare, field), f"the field {field}")


@check("data", "a save does not write the fields that the store manages")
async def identity_is_not_written(harness: Harness) -> None:
    store = await harness.open()
    made = await store.create_session("a", agent_type="agent")
    await store.save_state("a", plain_state("a", version=50, updated_at=1, owner_epoch=7))
    loaded = await store.load_state("a")
    assert loaded is not None
    got = (loaded.session_id, loaded.version, loaded.created_at, loaded.incarnation, loaded.owner_epoch)
    expect_same(got, ("a", 2, made.created_at, made.incarnation, 0), "id, version, creation time, incarnation, epoch")
    expect_same(loaded.updated_at >= made.updated_at, True, "whether updated_at advanced")


@check("data", "custom state round-trips every unusual value, whichever method wrote it")
async def custom_state_round_trips(harness: Harness) -> None:
    store = await harness.open()
    awkward = awkward_state()
    await store.create_session("created", agent_type="agent", custom_state=awkward)
    for session_id in ("saved", "committed", "merged", "staged", "appended"):
        await store.create_session(session_id, agent_type="agent", custom_state={"list": []})
    await store.save_state("saved", plain_state("saved", custom_state=awkward))
    await store.save_state_and_promote_staging("committed", plain_state("committed", custom_state=awkward), [], meta())
    ops = writes(*(put(key, value=value) for key, value in awkward.items()))
    await store.merge_custom_state("merged", ops)
    await store.stage_changes("staged", "step-1", ops, tool_call_id="call-1", result=awkward)
    rows = await store.list_staged("staged", "step-1")
    expect_same((rows[0].writes.ops, rows[0].result), (ops.ops, awkward), "what was staged")
    await store.promote_staging("staged", "step-1")
    await store.merge_custom_state("appended", writes(push("list", items=list(AWKWARD_VALUES))))
    async for reader in readers(harness, store):
        for session_id in ("created", "saved", "committed", "merged", "staged"):
            loaded = await reader.load_state(session_id)
            assert loaded is not None
            got = {key: value for key, value in loaded.custom_state.items() if key != "list"}
            expect_same(got, awkward, f"custom state that was {session_id}")
        loaded = await reader.load_state("appended")
        expect_same(loaded.custom_state if loaded else None, {"list": list(AWKWARD_VALUES)}, "what was appended")


@check("data", "messages come back exactly as given, unknown keys included")
async def messages_round_trip(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    messages: list[dict[str, Any]] = [{"role": "user", "content": text, text: [text]} for text in AWKWARD_TEXTS]
    messages += [{"role": "x", "value": value, "deep": {"value": [value]}} for value in AWKWARD_VALUES]
    messages += [{"role": ""}, user("same"), user("same"), {"role": "\ud800", "custom_key": {"kept": True}}]
    await store.append_messages("a", messages[:10])
    await store.save_state_and_promote_staging("a", plain_state("a"), messages[10:], meta())
    async for reader in readers(harness, store):
        page = await reader.get_messages("a", limit=None)
        expect_same(page.items, messages, "the messages")
        expect_same([list(item) for item in page.items], [list(item) for item in messages], "the order of members")


@check("data", "strings in all other fields round-trip")
async def other_texts_round_trip(harness: Harness) -> None:
    store = await harness.open()
    text = " ".join(AWKWARD_TEXTS)
    labels = {each: each for each in AWKWARD_TEXTS}
    await store.create_session("a", agent_type="agent", metadata=labels)
    made = await store.load_state("a")
    expect_same(made.metadata if made else None, labels, "the metadata of a new session")
    state = plain_state(
        "a",
        output=list(AWKWARD_VALUES),
        error=text,
        failure_reason=text,
        interrupt_context={text: list(AWKWARD_VALUES)},
        metadata=labels,
        tags=("x,y", "ünï 😀", "'", '"', "%", "~/"),
    )
    await store.save_state("a", state)
    await store.create_run("a", "run-1", metadata={text: list(AWKWARD_VALUES)})
    await store.update_run_status("run-1", "failed", error=text, output=list(AWKWARD_VALUES))
    noted = ref("sub", status=text, name=text, remote={text: list(AWKWARD_VALUES)})
    await store.add_sub_session_refs("a", [noted])
    async for reader in readers(harness, store):
        loaded = plain(await reader.load_state("a"))
        for field in ("output", "error", "failure_reason", "interrupt_context", "tags", "metadata"):
            expect_same(loaded[field], getattr(state, field), f"the field {field}")
        run = (await reader.list_runs("a"))[0]
        got = (run.metadata, run.error, run.output)
        expect_same(got, ({text: list(AWKWARD_VALUES)}, text, list(AWKWARD_VALUES)), "the run")
        expect_same(await reader.list_sub_session_refs("a"), [noted], "the refs")


@check("data", "ids may hold any printable text")
async def ids_round_trip(harness: Harness) -> None:
    store = await harness.open()
    ids = ["a b", "ünï😀", "~/..%2F", "'\";--", "x" * 256, "\u00a0", "e\u0301", ":*?[]|", "null", "__proto__"]
    for name in ids:
        await store.create_session(name, agent_type="agent", user_id=name, parent_session_id=f"p{name}"[:256])
        await store.create_run(name, name)
        await store.stage_changes(name, name, writes(put("v", value=1)), tool_call_id=name)
        await store.add_sub_session_refs(name, [ref(name, parent_tool_call_id=name)])
    again = await harness.reopen()
    for name in ids:
        loaded, run = await again.load_state(name), await again.get_current_run(name)
        assert loaded is not None
        assert run is not None
        staged = await again.list_staged(name, name)
        refs = await again.list_sub_session_refs(name)
        got = (loaded.session_id, loaded.user_id, run.run_id, staged[0].tool_call_id, refs[0].sub_session_id)
        expect_same(got, (name,) * 5, "the ids")


@check("data", "deep nesting is stored or rejected, never damaged")
async def deep_nesting_is_kept_or_refused(harness: Harness) -> None:
    store = await harness.open()
    for depth in (50, 100, 198, 199, 200, 201, 1000):
        session_id = f"depth-{depth}"
        value = {"deep": nested(depth)}
        try:
            await store.create_session(session_id, agent_type="agent", custom_state=value)
        except NotSerializable:
            expect_same(depth > 150, True, f"whether a depth of {depth} may be rejected")
            expect_same(await store.session_exists(session_id), False, "whether a rejected session exists")
            continue
        loaded = await store.load_state(session_id)
        expect_same(loaded.custom_state if loaded else None, value, f"a value {depth} deep")


@check("data", "a big value comes back whole")
async def big_values_come_back(harness: Harness) -> None:
    store = await harness.open()
    text = "0123456789 é😀" * 60_000
    await store.create_session("a", agent_type="agent", custom_state={"text": text, "list": list(range(20_000))})
    await store.append_messages("a", [user(text), *(user(f"{n}") for n in range(3000))])
    again = await harness.reopen()
    loaded = await again.load_state("a")
    assert loaded is not None
    expect_same(
        loaded.custom_state == {"text": text, "list": list(range(20_000))}, True, "whether the state is complete"
    )
    page = await again.get_messages("a", limit=None)
    expect_same((len(page.items), page.items[0]["content"] == text), (3001, True), "the messages")


@check("data", "changing a value that was passed to or returned by a store does not change what is stored")
async def values_are_detached(harness: Harness) -> None:
    store = await harness.open()
    given = {"items": [1]}
    message = user("one", parts=[1])
    ops = writes(put("staged", value=[1]))
    made = await store.create_session("a", agent_type="agent", custom_state=given)
    await store.append_messages("a", [message])
    await store.stage_changes("a", "step-1", ops, tool_call_id="call-1")
    given["items"].append(2)
    expect_same(made.custom_state, {"items": [1]}, "the state that create_session returned")
    message["parts"].append(2)
    ops.ops[0]["value"].append(2)
    page = await store.get_messages("a")
    page.items[0]["parts"].append(3)
    await store.promote_staging("a", "step-1")
    loaded = await store.load_state("a")
    assert loaded is not None
    expect_same(loaded.custom_state, {"items": [1], "staged": [1]}, "custom state")
    expect_same((await store.get_messages("a")).items, [user("one", parts=[1])], "the messages")
