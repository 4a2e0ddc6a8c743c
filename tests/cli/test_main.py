"""The command line, used as an operator would: by its output and exit code.

Most commands run through `main()` inside this process, which is much faster than starting one for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from helix_agents import Agent, AgentExecutor, CheckpointMeta, ScriptedLLM, open_stores, tool
from helix_agents.cli import main
from helix_agents.llm import Call
from helix_agents.types import SessionStatus
from tests.cli.agents_for_the_cli import make_executor, publisher

MODULE = "tests.cli.agents_for_the_cli"
HARNESS = """
from helix_agents.backends.inmemory.usage_store import InMemoryUsageStore
from helix_agents.conformance.harness import Harness

class MyHarness(Harness):
    def __init__(self):
        super().__init__()
        self.store = InMemoryUsageStore()

    async def open_usage(self):
        return self.store
"""


class Done(NamedTuple):
    """The outcome of a command."""

    returncode: int
    stdout: str
    stderr: str


def helix(*arguments: str, url: str | None = None, cwd: Path | None = None) -> Done:
    """Run a command through `main()`, in its own thread: tests may have an event loop."""
    out, err = io.StringIO(), io.StringIO()

    def run() -> int:
        try:
            return main(arguments)
        except SystemExit as stop:  # of argparse
            return int(stop.code or 0)

    with ThreadPoolExecutor(1) as thread, contextlib.chdir(cwd or Path.cwd()), pytest.MonkeyPatch.context() as patch:
        patch.delenv("HELIX_URL", raising=False)
        if url is not None:
            patch.setenv("HELIX_URL", url)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = thread.submit(run).result(60)
    return Done(code, out.getvalue(), err.getvalue())


def helix_process(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a process."""
    environment = {**os.environ, "HELIX_URL": url}
    command = [sys.executable, "-m", "helix_agents.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


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
    done = helix("cleanup", "--blobs-after-hours", "0", url=url).stdout
    assert "detected: 0" in done
    assert "blobs_deleted: 0" in done


def test_tail_shows_text_and_json(url: str) -> None:
    done = helix("tail", "s1", url=url)
    assert done.returncode == 0, done.stderr
    assert "Hello world" in done.stdout
    chunks = [json.loads(line) for line in helix("tail", "s1", "--from", "1", "--json", url=url).stdout.splitlines()]
    assert any(line.get("chunk", line).get("delta") == "world" for line in chunks)
    assert not any(line.get("chunk", line).get("delta") == "Hello " for line in chunks)


def test_help_names_every_command() -> None:
    text = helix("--help").stdout
    for command in ("sessions", "migrate", "verify", "cleanup", "tail", "conformance", "demo", "serve", "completion"):
        assert command in text
    assert "helix sessions list --status failed" in text, "examples"
    assert "--host" in helix("serve", "--help").stdout


def test_a_bad_address_is_an_error_in_one_line() -> None:
    done = helix("verify", "--url", "nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("helix: 'nonsense' is not a store address")
    assert "Traceback" not in done.stderr


def test_the_module_is_the_command_too(url: str) -> None:
    done = helix_process("sessions", "list", "--user", "ann", url=url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "s1" in done.stdout
    assert helix_process("sessions", "show", "nobody", url=url).returncode == 1


def test_the_version_is_told() -> None:
    assert helix("--version").stdout.startswith("helix-agents 0.")


READING = [
    ("sessions", "list"),
    ("sessions", "show", "s"),
    ("sessions", "delete", "s"),
    ("sessions", "fork", "s"),
    ("sessions", "restore", "s", "c"),
    ("sessions", "interrupt", "s"),
    ("answer", "s"),
    ("usage", "s"),
    ("tail", "s"),
    ("verify",),
    ("cleanup",),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_only_migrate_creates_stores(command: tuple[str, ...], tmp_path: Path) -> None:
    done = helix(*command, url="sqlite:mistyped.db", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("helix: There are no stores at sqlite:mistyped.db: check the address")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("sessions", "list"), ("verify",), ("migrate",), ("demo", "--url", "memory:")])
def test_memory_is_refused_because_a_command_is_another_process(command: tuple[str, ...]) -> None:
    done = helix(*command, url="memory:")
    assert done.returncode == 1
    assert "cannot share memory" in done.stderr


@pytest.mark.parametrize("command", [("--help",), ("sessions", "list", "--help"), ("serve", "--help"), ("verify",)])
def test_no_password_is_printed(command: tuple[str, ...]) -> None:
    done = helix(*command, url="postgresql://user:s3cr3t@127.0.0.1:1/x")
    assert "s3cr3t" not in done.stdout + done.stderr


async def test_an_unknown_outcome_is_shown_and_answered(url: str) -> None:
    @tool(effect="once", timeout_seconds=0.01)
    async def pay(order: str) -> str:
        """Pay; nobody knows whether it worked."""
        await asyncio.Event().wait()
        return order

    llm = ScriptedLLM([[Call("pay", {"order": "7"})], "Done."])
    async with open_stores(url) as stores, AgentExecutor(stores, llm) as executor:
        payer = Agent("payer", tools=[pay])
        call_id = (await executor.run(payer, "Go", session_id="o")).suspended[0].tool_call_id
        assert "waits for --happened" in helix("answer", "o", url=url).stdout
        assert "happened=" in helix("answer", "o", call_id, "--approve", url=url).stderr
        done = helix("answer", "o", call_id, "--happened", "yes", "--result", '"paid"', url=url)
        assert done.stdout.startswith("accepted")
        assert helix("answer", "o", call_id, "--happened", "no", url=url).stdout.startswith("duplicate")
        result = await (await executor.resume(payer, "o")).result()
        messages = (await stores.state.get_messages("o")).items
    assert result.status == "completed"
    assert [each["content"] for each in messages if each["role"] == "tool"] == ["paid"]


async def test_questions_are_shown_and_answered_and_the_run_goes_on(url: str) -> None:
    async with open_stores(url) as stores, make_executor(stores) as executor:
        result = await (await executor.execute(publisher, "Go", session_id="q")).result()
        assert result.status.startswith("suspended")
    asked = [json.loads(line) for line in helix("answer", "q", "--json", url=url).stdout.splitlines()]
    calls = {each["tool_name"]: each["tool_call_id"] for each in asked}
    assert "waits for approval" in helix("answer", "q", url=url).stdout
    assert "--approve" in helix("answer", "q", calls["publish"], url=url).stderr
    assert helix("answer", "q", calls["publish"], "--approve", url=url).stdout.startswith("accepted")
    assert "JSON" in helix("answer", "q", calls["ask"], "--result", "because", url=url).stderr
    assert "helix sessions resume" in helix("answer", "q", calls["ask"], "--result", '"because"', url=url).stdout
    resumed = helix("sessions", "resume", f"{MODULE}:make_executor", "q", url=url)
    assert resumed.returncode == 0, resumed.stderr
    assert "All done." in resumed.stdout
    assert resumed.stdout.endswith("q is completed.\n")
    assert json.loads(helix("usage", "q", "--json", url=url).stdout)["tools"]["publish"]["calls"] == 1
    assert "publish" in helix("usage", "q", url=url).stdout
    assert "q" in helix("usage", url=url).stdout


@pytest.mark.parametrize("name", ["nonsense", "no_such_module:x", f"{__name__}:nothing", f"{__name__}:MODULE"])
def test_what_is_not_an_executor_is_an_error_in_one_line(name: str, url: str) -> None:
    done = helix("sessions", "resume", name, "s1", url=url)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


async def test_a_session_is_restored_and_interrupted(url: str) -> None:
    checkpoint = json.loads(helix("sessions", "show", "s1", "--json", url=url).stdout)["checkpoints"][0][
        "checkpoint_id"
    ]
    async with open_stores(url) as stores:
        await stores.state.append_messages("s1", [{"role": "user", "content": "later"}])
    assert "is back at" in helix("sessions", "restore", "s1", checkpoint, url=url).stdout
    assert helix("sessions", "interrupt", "s2", "--reason", "enough", url=url).returncode == 0
    async with open_stores(url) as stores:
        assert await stores.state.get_message_count("s1") == 1
        flag = await stores.state.check_interrupt_flag("s2")
        session = await stores.state.load_state("s2")
    assert flag is not None or (session is not None and session.status == "interrupted")


@pytest.mark.parametrize(("status", "options"), [("completed", ()), ("interrupted", ()), ("completed", ("--abort",))])
async def test_interrupting_a_session_that_has_stopped_says_that_nothing_was_done(
    url: str, status: SessionStatus, options: tuple[str, ...]
) -> None:
    async with open_stores(url) as stores:
        before = await stores.state.update_status("s1", status)
    done = helix("sessions", "interrupt", "s1", *options, url=url)
    assert (done.returncode, done.stdout) == (0, f"Nothing was done: s1 is {status}.\n")
    assert json.loads(helix("sessions", "interrupt", "s1", *options, "--json", url=url).stdout)["asked"] is False
    async with open_stores(url) as stores:
        session = await stores.state.load_state("s1")
    assert session is not None
    assert (session.version, session.status) == (before, status)


async def test_sessions_are_listed_without_those_of_sub_agents(url: str) -> None:
    async with open_stores(url) as stores:
        await stores.state.create_session("child", agent_type="a", parent_session_id="s1", root_session_id="s1")
    listed = helix("sessions", "list", "--roots", "--json", url=url).stdout.splitlines()
    assert [json.loads(line)["session_id"] for line in listed] == ["s2", "s1"]
    assert "leave out --parent" in helix("sessions", "list", "--roots", "--parent", "s1", url=url).stderr


async def test_deleting_may_leave_usage_on_the_books(url: str) -> None:
    async with open_stores(url) as stores:
        await stores.usage.record_entry({"kind": "custom", "id": "e", "session_id": "s1", "name": "n", "value": 1})
    assert helix("sessions", "delete", "s1", "--keep-usage", url=url).returncode == 0
    async with open_stores(url) as stores:
        assert len(await stores.usage.get_entries("s1")) == 1


@pytest.mark.parametrize("name", ["publisher", "not_an_executor", "make_executor"])
def test_what_is_not_a_harness_is_an_error_in_one_line(name: str) -> None:
    done = helix("conformance", f"{MODULE}:{name}")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_harness_is_found_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "my_store.py").write_text(HARNESS)
    command = [str(Path(sys.executable).with_name("helix")), "conformance", "my_store:MyHarness", "--only", "U1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout


async def test_changes_are_told_as_json_too(url: str) -> None:
    checkpoint = json.loads(helix("sessions", "show", "s1", "--json", url=url).stdout)["checkpoints"][0]
    restored = helix("sessions", "restore", "s1", checkpoint["checkpoint_id"], "--json", url=url)
    assert json.loads(restored.stdout)["step_count"] == 1
    forked = json.loads(helix("sessions", "fork", "s1", "--to", "s3", "--json", url=url).stdout)
    assert (forked["session_id"], forked["custom_state"]) == ("s3", {"n": 1})
    stopped = json.loads(helix("sessions", "interrupt", "s2", "--reason", "enough", "--json", url=url).stdout)
    assert stopped == {"session_id": "s2", "abort": False, "reason": "enough", "asked": True}
    assert json.loads(helix("sessions", "delete", "s1", "--json", url=url).stdout) == {"session_id": "s1", "below": 0}
    assert json.loads(helix("migrate", "--json", url=url).stdout)["up_to_date"] is True


def test_a_page_of_json_tells_how_to_go_on_beside_it(url: str) -> None:
    page = helix("sessions", "list", "--limit", "1", "--json", url=url)
    assert [json.loads(line)["session_id"] for line in page.stdout.splitlines()] == ["s2"]
    assert page.stderr.startswith("more: --cursor ")


async def test_going_back_takes_the_stream_along(url: str) -> None:
    async with open_stores(url) as stores:
        state = await stores.state.load_state("s1")
        assert state is not None
        await stores.state.save_state_and_promote_staging("s1", state, [], CheckpointMeta("step-2", 2))
        await stores.streams.reset_stream("s1")
        async with await stores.streams.create_writer("s1", "run-2", "researcher") as writer:
            await writer.write({"type": "text_delta", "delta": "never said", "step": 2})
    checkpoint = json.loads(helix("sessions", "show", "s1", "--json", url=url).stdout)["checkpoints"][-1]
    assert helix("sessions", "restore", "s1", checkpoint["checkpoint_id"], url=url).returncode == 0
    async with open_stores(url) as stores:
        kinds = [stored.chunk["type"] for stored in await stores.streams.get_all_chunks("s1")]
    assert kinds == ["stream_resync"]


async def test_a_session_at_work_is_not_taken_back(url: str) -> None:
    async with open_stores(url) as stores:
        await stores.state.create_run("s1", "busy", lease_until=2**52)
    checkpoint = json.loads(helix("sessions", "show", "s1", "--json", url=url).stdout)["checkpoints"][0]
    done = helix("sessions", "restore", "s1", checkpoint["checkpoint_id"], url=url)
    assert done.returncode == 1
    assert "is running" in done.stderr


async def test_a_call_is_approved_with_other_arguments(url: str) -> None:
    async with open_stores(url) as stores, make_executor(stores) as executor:
        await (await executor.execute(publisher, "Go", session_id="q")).result()
        calls = {each.tool_name: each.tool_call_id for each in (await executor.list_waiting()).items}
    given = ("--approve", "--arguments", '{"title": "Bees"}')
    assert helix("answer", "q", calls["publish"], *given, url=url).stdout.startswith("accepted")
    assert helix("answer", "q", calls["ask"], "--result", "1", url=url).returncode == 0
    assert helix("sessions", "resume", f"{MODULE}:make_executor", "q", url=url).returncode == 0
    async with open_stores(url) as stores:
        said = [str(message) for message in (await stores.state.get_messages("q")).items]
    assert any("published Bees" in text for text in said)
    assert not any("published Ants" in text for text in said)


def test_bash_completes_commands_verbs_and_options(tmp_path: Path) -> None:
    script = tmp_path / "helix.bash"
    script.write_text(helix("completion").stdout)

    def completed(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in ("helix", *words))
        text = f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _helix; echo ${{COMPREPLY[*]}}"
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60, check=True)
        return set(done.stdout.split())

    assert completed("se") == {"serve", "sessions"}
    assert completed("sessions", "re") == {"restore", "resume"}
    assert {"--status", "--json", "--url"} <= completed("sessions", "list", "--")
    assert completed("serve", "--po") == {"--port"}


@pytest.mark.parametrize(
    "command",
    [
        ("export", "{}/missing/all.jsonl"),
        ("export", "{}/binary", "--resume"),
        ("import", "{}"),
        ("import", "{}/missing"),
        ("import", "{}/binary"),
        ("serve", "nothing:here"),
        ("serve", "--host", "0.0.0.0"),
        ("serve", "--host", "::"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_an_error_in_one_line(command: tuple[str, ...], url: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00 precious")
    done = helix(*(word.format(tmp_path) for word in command), url=url)
    assert done.returncode == 1
    assert done.stderr.startswith("helix: ")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "binary").read_bytes() == b"\xff\xfe\x00 precious"


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_what_is_not_a_port_is_refused(port: str) -> None:
    done = helix("serve", "--port", port)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
