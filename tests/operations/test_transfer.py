"""Sessions moved between backends: everything arrives, damage is detected, an interruption is harmless."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix_agents.backends.registry import Stores, open_stores
from helix_agents.cli import main
from helix_agents.errors import InvalidArgument, StoreUnavailable
from helix_agents.operations.transfer import export_sessions, import_sessions
from helix_agents.operations.transfer.records import Block, blocks
from helix_agents.operations.verify import verify_sessions
from helix_agents.stores.memory.contract import Memory
from tests.server.agents import make_executor, manager

SET_BY_THE_STORE = {
    "incarnation",
    "owner_epoch",
    "version",
    "created_at",
    "updated_at",
    "started_at",
    "lease_until",
    "start_sequence",
    "staged_at",
}


@pytest.fixture
async def source() -> AsyncIterator[Stores]:
    """Two turns with a checkpoint each, a sub-agent, a question that waits, a run that died, a memory."""
    async with open_stores("memory:") as stores:
        async with make_executor(stores) as executor:
            for saying in ("search ants", "tell search bees"):
                await (await executor.execute(manager, saying, session_id="talk", user_id="alice", tags=["t"])).result()
            await (await executor.execute(manager, "delete a.txt b.txt", session_id="asks")).result()
            calls = [each.tool_call_id for each in (await executor.list_waiting()).items]
            await executor.submit_tool_result("asks", calls[0], approved=True)
            await executor.execute(manager, "nap 60", session_id="dies", metadata={"title": "\ud800 \x00"})
        await stores.memory.save(Memory(entity_id="alice", content="likes ants", metadata={"sure": True}))
        yield stores


async def exported(stores: Stores, **options: Any) -> list[str]:
    texts: list[str] = []
    await export_sessions(stores, texts.append, **options)
    return "\n".join(texts).split("\n")


def plain(lines: list[str]) -> list[Any]:
    """Return what an export holds, without what only a store can set."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            if "patch" in value:  # the members of an object have no order
                value = {**value, "patch": sorted(value["patch"], key=lambda op: str(op["path"]))}
            return {name: strip(item) for name, item in value.items() if name not in SET_BY_THE_STORE}
        return [strip(item) for item in value] if isinstance(value, list) else value

    # Sessions created within one millisecond may be in either order.
    return sorted((strip(block) for block in blocks(lines[1:])), key=lambda block: str(block[0].get("session")))


async def test_everything_arrives_and_goes_on(source: Stores, tmp_path: Path) -> None:
    lines = await exported(source)
    async with open_stores(f"sqlite:{tmp_path / 'h.db'}") as target:
        done = await import_sessions(target, lines)
        assert (done.sessions, done.skipped, done.memories) == (4, 0, 1)
        assert plain(await exported(target)) == plain(lines)
        async with make_executor(target) as executor:
            (wait,) = (await executor.list_waiting()).items
            await executor.submit_tool_result("asks", wait.tool_call_id, approved=True)
            assert (await (await executor.resume(manager, "asks")).result()).status == "completed"
            assert (await executor.can_resume("dies")).can_resume
            await (await executor.execute(manager, "hello", session_id="talk")).result()
        asks = await target.state.load_state("asks")
        assert asks is not None
        assert asks.custom_state == {"deleted": ["a.txt", "b.txt"]}
        before = [point.state.custom_state for point in await points(source)]
        after = [point.state.custom_state for point in await points(target)]
        assert after[-len(before) :] == before


async def test_everything_arrives_on_every_backend_and_comes_back(
    source: Stores, redis_url: str, postgres_url: str, tmp_path: Path
) -> None:
    lines = await exported(source)
    wanted = plain(lines)
    for url in (redis_url, postgres_url, f"sqlite:{tmp_path / 'h.db'}", redis_url + "?prefix=other"):
        async with open_stores(url) as target:
            assert (await import_sessions(target, lines)).complete
            lines = await exported(target)  # the next one is given what this one gives
            assert plain(lines) == wanted, url.partition(":")[0]
            assert [problems async for _, problems in verify_sessions(target.state) if problems] == []


async def points(stores: Stores) -> list[Any]:
    listed = (await stores.state.list_checkpoints("talk", limit=200)).items
    return [await stores.state.get_checkpoint("talk", point.checkpoint_id) for point in listed]


async def test_an_import_run_again_changes_nothing(source: Stores, tmp_path: Path) -> None:
    lines = await exported(source)
    async with open_stores(f"sqlite:{tmp_path / 'h.db'}") as target:
        await import_sessions(target, lines)
        before = await exported(target)
        done = await import_sessions(target, lines)
        assert (done.sessions, done.skipped) == (0, 4)
        assert [line for line in await exported(target) if "memories" not in line] == [
            line for line in before if "memories" not in line
        ]


async def test_an_import_that_died_anywhere_is_finished_by_the_next(source: Stores, tmp_path: Path) -> None:
    lines = await exported(source)
    for last in range(1, 60, 4):
        async with open_stores(f"sqlite:{tmp_path / f'{last}.db'}") as target:
            dying = Stores(Dying(target.state, last), target.streams, target.usage, target.memory, target.blobs)  # type: ignore[arg-type]
            try:
                await import_sessions(dying, lines)
            except StoreUnavailable:
                await import_sessions(target, lines)
            assert plain(await exported(target)) == plain(lines)


class Dying:
    """A state store that fails after this many calls."""

    def __init__(self, inner: Any, calls: int) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls -= 1
        if self._calls < 0:
            raise StoreUnavailable("gone")
        return getattr(self._inner, name)


async def test_one_session_is_exported_with_those_below_it(source: Stores) -> None:
    sessions = [
        block[0]["session"]["session_id"] for block in blocks((await exported(source, session_id="talk"))[1:-1])
    ]
    assert sessions[0] == "talk"
    assert len(sessions) == 2


def resealed(lines: list[str], old: str, new: str) -> list[str]:
    """Return the export with one value replaced and the digests recomputed, like a file written by hand."""
    changed, block = [lines[0]], Block()
    for line in lines[1:]:
        text = line.replace(old, new)
        if '"kind":"end_session"' in text:
            text = json.dumps({**json.loads(text), "sha256": block.sha256})
            block = Block()
        else:
            block.take(text)
        changed.append(text)
    return changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"search ants"', "NaN"),
        ('"search ants"', "[" * 20_000 + "]" * 20_000),
        ('"kind":"messages","items"', '"kind":"messages","things"'),
        ('"kind":"run","run"', '"kind":"run","walk"'),
        ('"agent_type":"manager"', '"agent_type":7'),
    ],
    ids=["NaN", "nested", "no items", "no run", "wrong type"],
)
async def test_a_file_made_by_hand_is_refused_in_one_sentence(
    source: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    lines = resealed(await exported(source), old, new)
    file = tmp_path / "made.jsonl"
    file.write_text("\n".join(lines) + "\n")
    assert await asyncio.to_thread(main, ["import", str(file), "--url", f"sqlite:{tmp_path / 'h.db'}"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("helix: ")
    assert told.count("\n") == 1
    assert len(told) < 400


async def test_one_user_is_exported_with_what_is_remembered(source: Stores) -> None:
    await source.memory.save(Memory(entity_id="bob", content="likes bees"))
    text = "\n".join(await exported(source, user_id="alice"))
    assert '"session_id":"talk"' in text
    assert "likes ants" in text
    assert '"session_id":"dies"' not in text
    assert "likes bees" not in text


def test_an_export_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    url, file = f"sqlite:{tmp_path / 'a.db'}", tmp_path / "all.jsonl"
    assert helix("migrate", "--url", url) == 0
    assert helix("export", str(file), "--url", url) == 0
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["word", "line", "cut", "newer", "foreign", "no end"])
async def test_a_bad_file_is_refused_and_says_why(source: Stores, tmp_path: Path, damage: str) -> None:
    lines = await exported(source)
    match damage:
        case "word":
            lines = [line.replace("search ants", "search arts") for line in lines]
        case "line":
            lines.remove(next(line for line in lines if '"kind":"run"' in line))
        case "cut":
            lines = lines[:3]
        case "newer":
            lines[0] = lines[0].replace('"version":1', '"version":2')
        case "foreign":
            lines[0] = '{"kind": "something else"}'
        case "no end":
            lines = lines[:-1]
    async with open_stores(f"sqlite:{tmp_path / 'h.db'}") as target:
        with pytest.raises(InvalidArgument, match=r"damaged|cut off|upgrade|not an export"):
            await import_sessions(target, lines)
        if damage != "no end":
            assert not (await target.state.list_sessions()).items


def helix(*arguments: str) -> int:
    return main([*arguments])


def test_the_command_line_moves_sessions_and_goes_on_after_an_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"
    file = tmp_path / "sessions.jsonl"

    async def fill() -> None:
        async with open_stores(here) as stores, make_executor(stores) as executor:
            for number in range(3):
                await (await executor.execute(manager, "search ants", session_id=f"s{number}")).result()

    asyncio.run(fill())
    assert helix("export", str(file), "--url", here, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sessions": 3, "skipped": 0, "memories": 0}
    assert helix("export", str(file), "--url", here) == 1
    assert "--resume" in capsys.readouterr().err
    whole = file.read_text()
    cut = whole.index('"session_id":"s1"') + 300
    file.write_text(whole[:cut])
    assert helix("import", str(file), "--url", there) == 1
    assert helix("export", str(file), "--resume", "--url", here) == 0
    assert file.read_text() == whole
    assert helix("import", str(file), "--url", there, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sessions": 2, "skipped": 1, "memories": 0, "complete": True}


async def test_blobs_travel_with_their_session_and_damaged_ones_are_refused() -> None:
    async with open_stores("memory:") as source, open_stores("memory:") as target, open_stores("memory:") as other:
        await source.state.create_session("s", agent_type="a")
        ref = await source.blobs.put("s", b"\x00picture\xff", media_type="image/png")
        lines: list[str] = []
        await export_sessions(source, lines.append)
        await import_sessions(target, "\n".join(lines).splitlines())
        assert await target.blobs.get("s", ref.digest) == b"\x00picture\xff"
        damaged = "\n".join(lines).replace("AHBpY3R1cmX/", "AHBpY3R1cmX+").splitlines()
        with pytest.raises(InvalidArgument, match="damaged"):
            await import_sessions(other, damaged)
        assert (await other.blobs.list("s")).items == []


async def test_an_export_holds_the_active_conversation_of_a_branched_session(source: Stores) -> None:
    async with make_executor(source) as executor:
        await (await executor.regenerate("talk", agent=manager)).result()
        assert len(await executor.list_branches("talk")) == 2
    lines = await exported(source)
    async with open_stores("memory:") as target:
        assert (await import_sessions(target, lines)).complete
        theirs, ours = [await stores.state.get_messages("talk", limit=None) for stores in (source, target)]
        assert ours.items == theirs.items
        assert await target.state.list_branches("talk") == []
