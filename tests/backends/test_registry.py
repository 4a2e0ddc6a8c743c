"""`open_stores`: URLs, options, and errors that say what to write instead."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from helix_agents import HelixError, InvalidArgument, Stores, StoreUnavailable, open_stores
from helix_agents.backends import registry
from helix_agents.backends.sql_shared.schema import migrate as migrations
from helix_agents.backends.url import StoresUrl, parse_url
from helix_agents.errors import NotMigrated
from helix_agents.sqlite import SqliteStateStore


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
        ("helix.db", "is not a store address"),
        ("cassandra://x", "Unknown backend 'cassandra'. Known backends: .*sqlite"),
        ("sqlite:", "must name a file"),
        ("sqlite:a.db?colour=red", "Unknown option 'colour' of sqlite:a.db. Known options: max_chunks, prefix"),
        ("sqlite:a.db?synchronous=maybe", "FULL, NORMAL or OFF"),
        ("sqlite:a.db?max_chunks=many", "Invalid option max_chunks='many' of sqlite:a.db: expected an integer"),
        ("sqlite:a.db?prefix=Bobby;--", "table prefix"),
        ("memory:?prefix=x", "Unknown option 'prefix'"),
    ],
)
async def test_a_bad_address_says_what_is_wrong(
    url: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=says):
        async with open_stores(url):
            pass


@pytest.mark.parametrize("backend", ["memory:", "sqlite:a.db"])
async def test_retention_of_streams_is_said_alike_on_every_backend(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_stores(f"{backend}?stream_ttl_seconds=30&max_chunks=5") as stores:
        kept = vars(stores.streams)
        assert (kept["ttl_seconds"], kept["max_chunks"]) == (30, 5)


@pytest.mark.parametrize("backend", ["memory:", "sqlite:a.db", "redis://127.0.0.1:1", "do://:t@127.0.0.1:1/x"])
async def test_a_time_without_a_unit_is_refused_on_every_backend(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=r"Unknown option 'ttl' .*stream_ttl_seconds"):
        async with open_stores(f"{backend}?ttl=5"):
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


SECRET = "s3cr3t"
ADDRESSES_WITH_PASSWORDS = [
    f"postgresql+asyncpg://u:{SECRET}@127.0.0.1:1/x",
    f"postgresql+psycopg://u:{SECRET}@127.0.0.1:1/x",
    f"postgres://u:{SECRET}@127.0.0.1:1/x",
    f"postgresql://u:{SECRET}@127.0.0.1:1/x?pool_size=none",
    f"postgresql://u:{SECRET}@127.0.0.1:1/x?pool_size=0",
    f"postgresql://u:{SECRET}/x@127.0.0.1:1/x",
    f"postgresql://u:{SECRET}?x@127.0.0.1:1/x",
    f"postgresql://u:{SECRET}#x@127.0.0.1:1/x",
    f"postgresql://u:{SECRET}@127.0.0.1:port/x",
    f"postgresql:u:{SECRET}@127.0.0.1/x",
    f"postgresql://u@127.0.0.1:1/x?password={SECRET}",
    f"redis://:{SECRET}@127.0.0.1:1/0",
    f"rediss://:{SECRET}@127.0.0.1:1/0",
    f"valkey://:{SECRET}@127.0.0.1:1/0",
    f"redis+cluster://:{SECRET}@127.0.0.1:1",
    f"redis://u:{SECRET}@127.0.0.1:1/0?foo=1",
    f"redis://u:{SECRET}@127.0.0.1:1/0?session_ttl_seconds=soon",
    f"redis://u:{SECRET}@127.0.0.1:1/0?ssl_ca_certs=x",
    f"redis://u:{SECRET}@127.0.0.1:1/0?max_connections=x",
    f"redis://u:{SECRET}/x@127.0.0.1:1/0",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"mysql://u:{SECRET}@127.0.0.1/x",
    f"sqlite://u:{SECRET}@127.0.0.1/x?colour=red",
    f"sqlite://u:{SECRET}@127.0.0.1/x",
    f"u:{SECRET}@127.0.0.1/x",
    f"//u:{SECRET}@127.0.0.1/x",
    f"u{SECRET}@127.0.0.1",
]


@pytest.mark.parametrize("url", ADDRESSES_WITH_PASSWORDS)
async def test_no_error_shows_a_password(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HelixError) as caught:
        async with open_stores(url):
            pass
    assert SECRET not in "".join(traceback.format_exception_only(caught.value))
    chain: BaseException | None = caught.value
    while chain is not None:
        assert SECRET not in str(chain)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    assert SECRET not in caplog.text


def test_the_repr_of_an_address_shows_no_password() -> None:
    assert SECRET not in repr(parse_url(f"postgresql://u:{SECRET}@h/x?listen_dsn=postgresql://u:{SECRET}@h/x"))


@pytest.mark.parametrize(
    ("place", "other"), [("//u:p%40%3F@h:1/0", "//h:1/0"), ("//h/x", "//h/x"), ("//u@[::1]:1", "//[::1]:1")]
)
def test_an_address_is_shown_without_user_and_password(place: str, other: str) -> None:
    url = parse_url(f"redis:{place}?prefix=a")
    url.ensure_server()
    assert url.shown == f"redis:{other}"


async def test_opening_without_migrating_neither_creates_nor_changes(tmp_path: Path) -> None:
    missing, foreign = tmp_path / "missing.db", tmp_path / "foreign.db"
    with contextlib.closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE t (a)")
    before = foreign.read_bytes()
    for path in (missing, foreign):
        with pytest.raises(NotMigrated, match="There are no stores at"):
            async with open_stores(f"sqlite:{path}", migrate=False):
                pass
    assert not missing.exists()
    assert foreign.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["foreign.db"]


async def test_opening_an_older_schema_without_migrating_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with open_stores(url):
        pass
    shutil.copytree(str(migrations.FOLDER), tmp_path / "next")
    (tmp_path / "next" / "0002_more.sql").write_text("-- family: state\nCREATE TABLE __agents_more (x TEXT);\n")
    monkeypatch.setattr(migrations, "FOLDER", tmp_path / "next")
    with pytest.raises(NotMigrated, match=r"have schema version 1, this library needs .*helix migrate"):
        async with open_stores(url, migrate=False):
            pass


async def test_opening_a_migrated_file_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with open_stores(url) as stores:
        await stores.state.create_session("s", agent_type="a")
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(20), open_stores(url) as stores:  # a writer would wait for 30 seconds
            assert await stores.state.session_exists("s")
        store = SqliteStateStore(tmp_path / "a.db")
        async with asyncio.timeout(20):
            assert await store.session_exists("s"), "a store built by hand does not wait either"
        await store.close()
