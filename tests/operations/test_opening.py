"""`open_stores`: addresses, options, errors that say what to write instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from helix_agents import InvalidArgument, Stores, StoreUnavailable, open_stores
from helix_agents.backends import registry
from helix_agents.backends.url import StoresUrl, parse_url


@pytest.mark.parametrize("scheme", ["sqlite:", "sqlite://", "sqlite:///"])
async def test_sqlite_takes_paths_with_and_without_slashes(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    place = str(path) if scheme != "sqlite:///" else str(path).lstrip("/")
    async with open_stores(scheme + place) as stores:
        await stores.state.create_session("s", agent_type="a")
    assert path.exists()


async def test_what_was_stored_is_there_after_opening_again(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with open_stores(url) as stores:
        await stores.state.create_session("s", agent_type="a", custom_state={"n": 1.0})
    async with open_stores(url) as stores:
        state = await stores.state.load_state("s")
    assert state is not None
    assert state.custom_state == {"n": 1.0}


async def test_leaving_closes_the_stores(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'a.db'}") as stores:
        pass
    with pytest.raises(StoreUnavailable, match="closed"):
        await stores.state.session_exists("s")


async def test_two_memory_stores_are_two_worlds() -> None:
    async with open_stores("memory:") as one, open_stores("memory:") as two:
        await one.state.create_session("s", agent_type="a")
        assert not await two.state.session_exists("s")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("helix.db", "is no address of stores"),
        ("cassandra://x", "nothing opens 'cassandra'"),
        ("sqlite:", "which file"),
        ("sqlite:a.db?colour=red", "no option 'colour'"),
        ("sqlite:a.db?synchronous=maybe", "FULL, NORMAL or OFF"),
        ("sqlite:a.db?max_chunks=many", "max_chunks=many is no int"),
        ("sqlite:a.db?prefix=Bobby;--", "table prefix"),
        ("memory:?prefix=x", "no option 'prefix'"),
    ],
)
async def test_a_bad_address_says_what_is_wrong(
    url: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=says):
        async with open_stores(url):
            pass


def test_options_are_read_from_the_query() -> None:
    url = parse_url("redis://user:secret@host:1/0?prefix=a%20b&ttl=5")
    assert (url.scheme, url.place) == ("redis", "//user:secret@host:1/0")
    assert (url.option("prefix", str, ""), url.option("ttl", int, 0), url.option("none", int, 7)) == ("a b", 5, 7)


async def test_third_parties_join_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", f"{__name__}:open_mine", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda *, group, name=None: [entry] if name in (None, "mine") else [])
    async with open_stores("mine:anything") as stores:
        assert await stores.state.session_exists("from-mine")
    assert "mine" in registry.schemes()


@asynccontextmanager
async def open_mine(url: StoresUrl) -> AsyncIterator[Stores]:
    async with open_stores("memory:") as stores:
        await stores.state.create_session("from-mine", agent_type=url.place)
        yield stores
