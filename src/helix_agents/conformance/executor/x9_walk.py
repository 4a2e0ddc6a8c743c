"""X9: random walks through everything that may happen to a conversation, in processes that may die at any call.

Single scenarios test the transitions that their authors thought of. A walk combines them: it answers, aborts, stops,
resumes, restores, regenerates, edits and switches in any order, and checks after each operation what must always hold.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ...errors import AlreadyRunning, InvalidArgument, NotResumable, VersionConflict
from ...executor import AgentExecutor
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, Line, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect_same
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, make_executor, simple_agent
from .mortal import Died, Life
from .page import expect_page, expect_sound

LEASE_SECONDS = 30.0
PATIENCE_SECONDS = 20.0
DEATHS = 0.3
LONGEST_LIFE = 25
OPERATIONS = 12

REFUSED = (AlreadyRunning, InvalidArgument, NotResumable, VersionConflict)
"""Errors of an operation that is not possible now. The walk continues."""


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Write something down."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    return "noted"


@tool(requires_approval=True)
async def publish(ctx: ToolContext) -> str:
    """Do what a person must approve."""
    ctx.increment("published")
    return "published"


@tool(execute="client")
async def ask() -> str:
    """Ask the user."""
    raise AssertionError("runs in the client")


AGENT = simple_agent(note, publish, ask, state={"notes": [], "published": 0})

STEPS: dict[str, list[Call]] = {
    "note": [Call("note", {"text": "a"}), Call("note", {"text": "b"})],
    "publish": [Call("publish"), Call("note", {"text": "c"})],
    "ask": [Call("ask"), Call("publish"), Call("note", {"text": "d"})],
}


def _reply(request: ModelRequest) -> Line:
    """Do in each step what the next word of the user names; the first one numbers the message."""
    messages = list(request.messages)
    asked = max(at for at, message in enumerate(messages) if message["role"] == "user")
    done = sum(message["role"] == "assistant" for message in messages[asked:])
    words = str(messages[asked]["content"]).split()[1:]
    return STEPS[words[done]] if done < len(words) else f"Done with {' '.join(words)}."


class Walk:
    """One conversation, what happens to it, and a journal of that for the message of a failure."""

    def __init__(self, stores: StoreSet, session_id: str, rng: random.Random) -> None:
        self._stores = stores
        self._id = session_id
        self._rng = rng
        self._clock = Clockwork()
        self._said = 0
        self._is_cut = False
        """Whether a process died between the change of the session and that of its stream: the next claim heals it."""
        self.journal: list[str] = []

    async def go(self) -> None:
        """Do some things, then finish the conversation."""
        await self._perform("say")
        for _ in range(OPERATIONS):
            await self._perform(self._rng.choice(VERBS), mortal=self._rng.random() < DEATHS)
            await self._expect_sound()
        await self._expect_to_continue()

    async def _perform(self, verb: str, *, mortal: bool = False) -> None:
        life = Life(self._rng.randrange(1, LONGEST_LIFE), reply_lost=self._rng.random() < 0.5) if mortal else Life()
        self.journal.append(f"{verb}, dead at {life.last}{' (reply lost)' * life.reply_lost}" if mortal else verb)
        executor, epoch = self._executor(life), await self._epoch()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await getattr(self, f"_{verb}")(executor)
            self._is_cut = self._is_cut and await self._epoch() == epoch
        except Died:
            self._is_cut = True
            await life.bury()
        except REFUSED as error:
            self.journal[-1] += f" -> {type(error).__name__}"
        finally:
            await executor.close()
        if life.over:
            self._clock.pass_seconds(LEASE_SECONDS + 1)

    async def _epoch(self) -> int:
        session = await self._stores.state.load_state(self._id)
        return session.owner_epoch if session else 0

    def _executor(self, life: Life | None = None) -> AgentExecutor:
        stores = life.wrap(self._stores) if life else self._stores
        options: Any = {"clock": self._clock, "lease_seconds": LEASE_SECONDS, "agents": [AGENT]}
        return make_executor(stores, ScriptedLLM(_reply), **options)

    def _message(self, *words: str) -> str:
        """Return a message that names the tools to call; no two are the same."""
        self._said += 1
        return " ".join((f"message-{self._said}", *words))

    # -- the operations

    async def _say(self, executor: AgentExecutor) -> None:
        words = self._rng.choices(list(STEPS), k=self._rng.randrange(3))
        await (await executor.execute(AGENT, self._message(*words), session_id=self._id)).result()

    async def _submit(self, executor: AgentExecutor) -> None:
        await executor.submit(AGENT, self._message("note"), session_id=self._id)
        if self._rng.random() < 0.5:
            await self._recover(executor)

    async def _answer(self, executor: AgentExecutor) -> None:
        session = await self._stores.state.load_state(self._id)
        for call_id, pending in sorted(session.pending_client_tool_calls.items() if session else ()):
            response: Any = {"approved": self._rng.random() < 0.7} if pending.kind == "approval" else {"result": "blue"}
            await executor.submit_tool_result(self._id, call_id, **response)
        await self._resume(executor)

    async def _resume(self, executor: AgentExecutor) -> None:
        await (await executor.resume(AGENT, self._id)).result()

    async def _retry(self, executor: AgentExecutor) -> None:
        await (await executor.retry(self._id)).result()

    async def _recover(self, executor: AgentExecutor) -> None:
        for handle in await executor.recover():
            await handle.result()

    async def _interrupt(self, executor: AgentExecutor) -> None:
        await executor.interrupt(self._id)

    async def _abort(self, executor: AgentExecutor) -> None:
        await executor.abort(self._id, "never mind")

    async def _restore(self, executor: AgentExecutor) -> None:
        checkpoints = (await self._stores.state.list_checkpoints(self._id)).items
        if checkpoints:
            chosen = self._rng.choice(checkpoints)
            self.journal[-1] += f" to step {chosen.step_count} ({chosen.kind})"
            await executor.restore(self._id, chosen.checkpoint_id)

    async def _regenerate(self, executor: AgentExecutor) -> None:
        await (await executor.regenerate(self._id)).result()

    async def _edit(self, executor: AgentExecutor) -> None:
        messages = (await self._stores.state.get_messages(self._id, limit=None)).items
        asked = [message["id"] for message in messages if message["role"] == "user"]
        if asked:
            await (await executor.edit(self._id, self._rng.choice(asked), self._message("note", "publish"))).result()

    async def _switch(self, executor: AgentExecutor) -> None:
        branches = await executor.list_branches(self._id)
        if others := [branch.branch_id for branch in branches if not branch.is_active]:
            await executor.switch_branch(self._id, self._rng.choice(others))

    # -- what must hold

    async def _expect_sound(self) -> None:
        await expect_sound(self._stores, self._id)
        run = await self._stores.state.get_current_run(self._id)
        if not self._is_cut and run is not None and run.status != "running":
            async with self._executor() as executor:
                await expect_page(self._stores, executor, self._id)

    async def _expect_to_continue(self) -> None:
        """Answer everything, and send a last message: the turn must complete, and its stream must show that."""
        for _ in STEPS:
            await self._perform("answer")  # each step of the turn may ask
        async with self._executor() as executor:
            last = await executor.run(AGENT, self._message(), session_id=self._id)
        self._is_cut = False
        expect_same(last.status, "completed", "the last turn")
        await self._expect_sound()


VERBS = (
    *("say", "say", "submit", "answer", "answer", "resume", "retry", "recover", "interrupt", "abort"),
    *("restore", "restore", "regenerate", "edit", "switch"),
)


@check("X9", "whatever happens to a conversation, in any order, it stays sound, and so does its stream", kind="random")
async def random_walks(harness: Harness) -> None:
    stores, seed = await harness.open_stores(), harness.options.seed
    for number in range(max(2, harness.options.steps // 25)):
        walk = Walk(stores, f"walk {number}", random.Random(f"{seed} {number}"))
        try:
            await walk.go()
        except Exception as error:
            raise AssertionError(f"seed {seed}, walk {number}: {'; '.join(walk.journal)}: {error!r}") from error
