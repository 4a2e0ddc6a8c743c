"""Typed state: tools see and change values of the state type, also in another process."""

from __future__ import annotations

import datetime
import enum
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_type

import msgspec
import pydantic
import pytest

from helix_agents import (
    Agent,
    AgentExecutor,
    InvalidArgument,
    ScriptedLLM,
    StateTracker,
    ToolContext,
    apply_patch,
    open_stores,
    tool,
)
from helix_agents.llm import Call
from helix_agents.state import TypedState, view


class Mood(enum.Enum):
    CALM = "calm"
    BUSY = "busy"


class Source(pydantic.BaseModel):
    url: str = pydantic.Field(alias="theUrl")
    seen_at: datetime.datetime


class Square(msgspec.Struct, tag=True):
    side: int


class Circle(msgspec.Struct, tag=True):
    radius: int


@dataclass
class Note:
    text: str
    mood: Mood = Mood.CALM


@dataclass
class Research:
    count: int = 0
    notes: list[Note] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    id: uuid.UUID | None = None
    span: tuple[datetime.date, int] | None = None
    tags: set[str] = field(default_factory=set)
    shapes: list[Square | Circle] = field(default_factory=list)
    by_mood: dict[Mood, int] = field(default_factory=dict)


ID = uuid.UUID(int=7)
WHEN = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
FULL = Research(
    1,
    [Note("a", Mood.BUSY)],
    [Source(theUrl="x", seen_at=WHEN)],
    ID,
    (datetime.date(2030, 1, 2), 3),
    {"q", "p"},
    [Square(1), Circle(2)],
    {Mood.CALM: 4},
)


@tool
async def fill(ctx: ToolContext[None, Research]) -> str:
    """Fill in everything."""

    def change(draft: Research) -> None:
        draft.count, draft.id, draft.span, draft.tags = FULL.count, FULL.id, FULL.span, set(FULL.tags)
        draft.notes.extend(FULL.notes)
        draft.sources += FULL.sources
        draft.shapes, draft.by_mood = list(FULL.shapes), dict(FULL.by_mood)

    assert_type(ctx.state, Research)
    assert ctx.update_state(change) == FULL
    return "filled"


@tool
async def look(ctx: ToolContext[None, Research]) -> str:
    """Look at it, in whatever process."""
    assert ctx.state == FULL
    return "as it was"


def told(messages: Any) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


async def test_what_is_put_into_the_state_comes_back_as_the_type_says_in_another_process(tmp_path: Path) -> None:
    agent = Agent("typed", tools=[fill, look], state=Research)
    url = f"sqlite:{tmp_path / 'helix.db'}"
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM([[Call("fill")], "One."])) as executor:
        await executor.run(agent, "Fill", session_id="s")
    script: list[Any] = [[Call("fill")], "One.", [Call("look")], "Two."]
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM(script)) as executor:
        await executor.run(agent, "Look", session_id="s")
        assert told((await stores.state.get_messages("s")).items) == ["filled", "as it was"]
        session = await stores.state.load_state("s")
        assert session is not None
        assert view(session.custom_state, Research) == FULL


@tool
async def note(text: str, ctx: ToolContext[None, Research]) -> str:
    """Note something."""
    ctx.update_state(lambda draft: draft.notes.append(Note(text)))
    ctx.increment("count")
    return text


async def test_appends_and_counts_of_parallel_typed_tools_all_survive() -> None:
    calls = [Call("note", {"text": text}) for text in "abc"]
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM([calls, "Done."]))
        result = await executor.run(Agent("typed", tools=[note], state=Research), "Go", session_id="s")
        session = await stores.state.load_state("s")
        assert session is not None
        seen = view(session.custom_state, Research)
        assert (seen.notes, seen.count, result.warnings) == ([Note("a"), Note("b"), Note("c")], 3, [])


async def test_a_state_that_is_changed_in_place_fails_the_call_instead_of_being_lost() -> None:
    @tool
    async def careless(ctx: ToolContext[None, Research]) -> str:
        """Change what is only for looking at."""
        ctx.state.notes.append(Note("lost"))
        return "ok"

    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM([[Call("careless")], "Done."]))
        await executor.run(Agent("typed", tools=[careless], state=Research), "Go", session_id="s")
        assert "ctx.update_state" in told((await stores.state.get_messages("s")).items)[0]


def update(stored: dict[str, Any], fn: Any, schema: Any = Research) -> StateTracker:
    tracker = StateTracker(stored)
    TypedState(tracker, schema).update(fn)
    return tracker


def test_only_what_was_changed_is_written() -> None:
    stored = {"notes": [{"text": "a", "mood": "calm"}, {"text": "b", "mood": "calm"}], "count": 1}

    def change(draft: Research) -> None:
        draft.notes[1].mood = Mood.BUSY
        draft.count = 2

    assert update(stored, change).get_step_writes().ops == [
        {"kind": "replace", "path": ["count"], "value": 2},
        {"kind": "replace", "path": ["notes", 1, "mood"], "value": "busy"},
    ]
    assert update(stored, lambda draft: None).get_step_writes().ops == []


def test_a_field_that_the_type_has_lost_stays_stored_and_one_that_it_gained_has_its_default() -> None:
    stored = {"gone": 5, "notes": [{"text": "a", "gone": True}]}
    tracker = update(stored, lambda draft: (draft.notes.append(Note("b")), draft.tags.add("t")))
    assert tracker.state["gone"] == 5
    assert tracker.state["notes"] == [{"text": "a", "gone": True}, {"text": "b", "mood": "calm"}]
    assert tracker.state["tags"] == ["t"]


def test_a_field_without_a_default_that_is_not_stored_is_named() -> None:
    @dataclass
    class Newer:
        author: str

    with pytest.raises(InvalidArgument, match=r"not a valid Newer.*author"):
        update({"notes": []}, lambda draft: None, Newer)


def test_what_could_not_be_read_back_is_refused_and_nothing_changes() -> None:
    tracker = StateTracker({"count": 1})
    with pytest.raises(InvalidArgument, match="count"):
        TypedState(tracker, Research).update(lambda draft: setattr(draft, "count", "many"))
    assert tracker.state == {"count": 1}


def test_a_set_in_another_order_and_items_that_moved_are_written_as_a_whole() -> None:
    tracker = update({"tags": ["q", "p"]}, lambda draft: (draft.tags.discard("p"), draft.tags.add("z")))
    assert view(tracker.state, Research).tags == {"q", "z"}
    stored = {"notes": [{"text": text} for text in "abc"]}
    tracker = update(stored, lambda draft: draft.notes.pop(0))
    assert [each.text for each in view(tracker.state, Research).notes] == ["b", "c"]
    tracker = update(stored, lambda draft: draft.notes.insert(0, Note("z")))
    assert [each.text for each in view(tracker.state, Research).notes] == ["z", "a", "b", "c"]


async def test_instructions_and_conditions_see_the_state_as_their_parameter_says() -> None:
    def instructions(state: Research) -> str:
        return f"There are {len(state.notes)} notes."

    def noted(state: Research) -> bool:
        return bool(state.notes)

    @tool(when=noted)
    async def publish() -> str:
        """Publish."""
        return "ok"

    agent = Agent("typed", tools=[note, publish], state=Research, instructions=instructions)
    llm = ScriptedLLM([[Call("note", {"text": "a"})], "Done."])
    async with open_stores("memory:") as stores:
        await AgentExecutor(stores, llm).run(agent, "Go")
    assert [request.instructions for request in llm.requests] == ["There are 0 notes.", "There are 1 notes."]
    assert [len(request.tools) for request in llm.requests] == [1, 2]


async def test_the_first_state_of_a_session_may_be_an_instance() -> None:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM([[Call("look")], "Done."]))
        await executor.run(Agent("typed", tools=[look], state=Research), "Go", session_id="s", custom_state=FULL)
        assert told((await stores.state.get_messages("s")).items) == ["as it was"]


def test_a_type_that_cannot_be_read_back_is_refused_when_the_agent_is_made() -> None:
    @dataclass
    class Both:
        either: Note | Research | None = None

    with pytest.raises(InvalidArgument, match="Both"):
        Agent("typed", state=Both)


@dataclass
class Account:
    balance: int = 0
    owner: str = "ann"


class Budget(pydantic.BaseModel):
    food: int = 0
    rent: int = 0

    @pydantic.model_validator(mode="after")
    def within(self) -> Budget:
        if self.food + self.rent > 10:
            raise ValueError("too much")
        return self


@tool
async def put(key: str, value: Any, ctx: ToolContext) -> str:
    """Write to the plain draft, which checks nothing."""
    ctx.update_state(lambda draft: draft.update({key: value}))
    return "put"


async def put_all(agent: Agent, *calls: Call) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Return what the model saw, what is stored, and what a reader of the patches has."""
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM([list(calls), "Done."]))
        handle = await executor.execute(agent, "Go", session_id="s")
        seen: Any = agent.initial_state()
        async for chunk in handle.stream():
            if chunk["type"] == "state_patch":
                seen = apply_patch(seen, chunk["patches"])
        session = await stores.state.load_state("s")
        assert session is not None
        return told((await stores.state.get_messages("s")).items), session.custom_state or {}, seen


@pytest.mark.parametrize("value", ["many", "3", None, [1]])
async def test_a_value_that_does_not_fit_the_state_type_fails_its_call_and_is_never_stored(value: Any) -> None:
    agent = Agent("typed", tools=[put], state=Account)
    said, stored, seen = await put_all(
        agent, Call("put", {"key": "balance", "value": value}), Call("put", {"key": "owner", "value": "bob"})
    )
    assert "not a valid Account" in said[0]
    assert said[1] == "put"
    assert stored == seen == {"balance": 0, "owner": "bob"}


async def test_a_value_that_does_not_fit_is_not_stored_by_the_only_call_of_its_step_either() -> None:
    agent = Agent("typed", tools=[put], state=Account)
    said, stored, seen = await put_all(agent, Call("put", {"key": "balance", "value": "many"}))
    assert "not a valid Account" in said[0]
    assert stored == seen == {"balance": 0, "owner": "ann"}


async def test_writes_that_fit_alone_but_not_together_fail_one_call() -> None:
    agent = Agent("typed", tools=[put], state=Budget)
    said, stored, seen = await put_all(
        agent, Call("put", {"key": "food", "value": 6}), Call("put", {"key": "rent", "value": 6})
    )
    assert sorted(text == "put" for text in said) == [False, True]
    assert stored == seen
    assert sum(stored.values()) == 6


async def test_a_state_that_an_older_type_has_left_can_still_be_changed() -> None:
    agent = Agent("typed", tools=[put], state=Account)
    async with open_stores("memory:") as stores:
        await stores.state.create_session("s", agent_type="typed", custom_state={"balance": "old"})
        script = ScriptedLLM([[Call("put", {"key": "owner", "value": "bob"})], "Done."])
        await AgentExecutor(stores, script).run(agent, "Go", session_id="s")
        assert told((await stores.state.get_messages("s")).items) == ["put"]
