"""The command line, used as an operator would: as a process, by its output and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helix_agents import CheckpointMeta, open_stores


def helix(*arguments: str, url: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "HELIX_URL"}
    if url is not None:
        environment["HELIX_URL"] = url
    command = [sys.executable, "-c", "import sys; from helix_agents.cli import main; sys.exit(main())", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=60, check=False)


@pytest.fixture
async def url(tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with open_stores(url) as stores:
        state = await stores.state.create_session("s1", agent_type="researcher", custom_state={"n": 1}, user_id="ann")
        await stores.state.save_state_and_promote_staging(
            "s1", state, [{"role": "user", "content": "hello"}], CheckpointMeta("step-1", 1)
        )
        await stores.state.create_session("s2", agent_type="writer")
        async with await stores.streams.create_writer("s1", "run-1", "researcher") as writer:
            await writer.write({"type": "text_delta", "delta": "Hello "})
            await writer.write({"type": "text_delta", "delta": "world"})
        await stores.streams.end_stream("s1", {"answer": 42})
    return url


def test_sessions_are_listed_newest_first_and_filtered(url: str) -> None:
    listed = helix("sessions", "list", url=url)
    assert listed.returncode == 0
    assert [("s2" in line, "s1" in line) for line in listed.stdout.splitlines()] == [(True, False), (False, True)]
    only = helix("sessions", "list", "--user", "ann", "--json", url=url)
    assert [json.loads(line)["session_id"] for line in only.stdout.splitlines()] == ["s1"]


def test_a_long_listing_says_how_to_go_on(url: str) -> None:
    first = helix("sessions", "list", "--limit", "1", url=url).stdout.splitlines()
    cursor = first[-1].removeprefix("more: --cursor ")
    assert "s1" in helix("sessions", "list", "--cursor", cursor, url=url).stdout


def test_a_session_is_shown_whole(url: str) -> None:
    document = json.loads(helix("sessions", "show", "s1", "--json", url=url).stdout)
    assert document["session"]["custom_state"] == {"n": 1}
    assert document["messages"] == [{"role": "user", "content": "hello"}]
    assert "hello" in helix("sessions", "show", "s1", url=url).stdout


def test_a_session_is_forked_and_deleted(url: str) -> None:
    assert helix("sessions", "fork", "s1", "--to", "s3", url=url).stdout == "s3\n"
    assert helix("sessions", "delete", "s1", url=url).returncode == 0
    listed = helix("sessions", "list", url=url).stdout
    assert "s3" in listed
    assert "s1" not in listed
    assert helix("tail", "s1", url=url).returncode != 0, "its stream is gone as well"


async def test_deleting_takes_streams_and_usage_of_those_below_along(url: str) -> None:
    async with open_stores(url) as stores:
        await stores.state.create_session("child", agent_type="writer", parent_session_id="s1")
        await stores.state.create_session("guest", agent_type="writer", parent_session_id="s1", stream_id="s2")
        for session_id in ("child", "s2"):
            async with await stores.streams.create_writer(session_id, "run", "writer") as writer:
                await writer.write({"type": "text_delta", "delta": "x"})
            entry = {"kind": "custom", "id": "e", "session_id": session_id, "name": "calls", "value": 1}
            await stores.usage.record_entry(entry)
    assert helix("sessions", "delete", "s1", url=url).stdout == "Deleted s1 and 2 below it.\n"
    async with open_stores(url) as stores:
        assert await stores.streams.get_stream_info("child") is None
        assert await stores.usage.get_entries("child") == []
        assert await stores.streams.get_stream_info("s2") is not None, "the stream of a session that is still there"
        assert len(await stores.usage.get_entries("s2")) == 1


@pytest.mark.parametrize("verb", ["show", "delete", "fork"])
def test_an_unknown_session_is_an_error_in_one_line(verb: str, url: str) -> None:
    done = helix("sessions", verb, "nobody", url=url)
    assert done.returncode == 1
    assert done.stderr == "helix: There is no session 'nobody': create it first, or check the id.\n"


def test_verify_reads_everything(url: str) -> None:
    done = helix("verify", url=url)
    assert (done.returncode, done.stdout) == (0, "2 sessions read, 0 with problems.\n")


def test_verify_of_a_missing_session_fails(url: str) -> None:
    assert helix("verify", "nobody", url=url).returncode == 1


def test_migrate_makes_the_default_file(tmp_path: Path) -> None:
    done = helix("migrate", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "helix.db").exists()


def test_cleanup_counts(url: str) -> None:
    assert "detected: 0" in helix("cleanup", url=url).stdout


def test_tail_shows_text_and_json(url: str) -> None:
    done = helix("tail", "s1", url=url)
    assert done.returncode == 0, done.stderr
    assert "Hello world" in done.stdout
    chunks = [json.loads(line) for line in helix("tail", "s1", "--from", "1", "--json", url=url).stdout.splitlines()]
    assert any(line.get("chunk", line).get("delta") == "world" for line in chunks)
    assert not any(line.get("chunk", line).get("delta") == "Hello " for line in chunks)


def test_help_names_every_command() -> None:
    text = helix("--help").stdout
    for command in ("sessions", "migrate", "verify", "cleanup", "tail", "conformance", "demo"):
        assert command in text


def test_a_bad_address_is_an_error_in_one_line() -> None:
    done = helix("verify", "--url", "nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("helix: 'nonsense' is not an address of stores")
    assert "Traceback" not in done.stderr


def test_the_module_is_the_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "helix_agents.cli", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "sessions" in done.stdout
