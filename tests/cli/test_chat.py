"""`helix chat` as a person uses it: a process, its input and its output."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helix_agents import open_stores
from helix_agents.clock import system_clock
from tests.cli.chatty import WORDS

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60
TARGET = "tests.cli.chatty:make_executor"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'chat.db'}"


def command(*arguments: str, url: str) -> list[str]:
    return [sys.executable, "-m", "helix_agents.cli", "chat", *arguments, "--url", url]


def start(*arguments: str, url: str, **options: Any) -> subprocess.Popen[str]:
    """Start a chat."""
    return subprocess.Popen(command(*arguments, url=url), cwd=ROOT, text=True, **options)


def chat(*lines: str, url: str, target: str = TARGET, session: str = "s") -> str:
    """Send these lines, one after the other; return what was printed."""
    done = subprocess.run(
        command(target, "--name", "writer", "--session", session, url=url),
        cwd=ROOT,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def stored(url: str) -> tuple[str, list[str]]:
    """Return the status of the session, and its messages."""
    async with open_stores(url) as stores:
        session = await stores.state.load_state("s")
        assert session is not None
        messages = (await stores.state.get_messages("s", limit=None)).items
    return session.status, [str(message["content"]) for message in messages if message["role"] != "tool"]


async def test_replies_are_printed_and_stored(url: str) -> None:
    told = chat("hello", "", "bye", url=url)
    assert "> You said: hello\n> > You said: bye\n" in told
    assert f"To continue: helix chat {TARGET} --session s" in told
    assert await stored(url) == ("completed", ["hello", "You said: hello", "bye", "You said: bye"])


async def test_a_session_is_continued_with_what_was_said(url: str) -> None:
    chat("hello", url=url)
    told = chat("again", url=url)
    assert "> hello\nYou said: hello\n> You said: again\n" in told


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (["y"], "publish -> published Ants"),
        (["n"], "publish failed: A person refused this call."),
        (["perhaps", "Y"], "publish -> published Ants"),
        (['{"title": "Bees"}'], "published Bees"),
        (['{"titel": 1}', "y"], "publish -> published Ants"),
    ],
)
def test_an_approval_is_asked_for(url: str, answers: list[str], outcome: str) -> None:
    told = chat('publish {"title": "Ants"}', *answers, url=url)
    assert 'publish {\n  "title": "Ants"\n}\n' in told
    assert told.count("Approve?") == len(answers)
    assert outcome in told
    assert "Done: " in told


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["", "y", "yes"], "pay -> A person confirmed that this call took effect."),
        (["unknown"], "pay failed: It is not known whether this call took effect"),
        (["no", "yes"], "pay -> A person confirmed that this call took effect."),
    ],
)
def test_a_person_is_asked_whether_a_call_took_effect(url: str, answers: list[str], told: str) -> None:
    shown = chat('pay {"order": "7"}', *answers, url=url)
    assert shown.count("Did it take effect?") == len(answers)
    assert told in shown
    assert "Approve?" not in shown


def test_a_client_tool_is_answered(url: str) -> None:
    assert "ask -> Ada" in chat('ask {"question": "Who?"}', "Ada", url=url)


def test_arguments_show_every_character(url: str) -> None:
    title = "a\u202eb\x1b[2Kc\n\n\nd\u200f"
    told = chat(f"publish {json.dumps({'title': title})}", "n", url=url)
    assert '"title": "a\\u202eb\\u001b[2Kc\\n\\n\\nd\\u200f"' in told
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_a_question_waits_for_the_next_process(url: str) -> None:
    told = chat('publish {"title": "Ants"}', url=url)  # the input ends at the question
    assert "To continue" in told
    told = chat("y", url=url)
    assert "publish -> published Ants" in told


def test_a_failed_turn_is_reported_and_the_chat_goes_on(url: str) -> None:
    told = chat("break", "hello", url=url)
    assert "(failed: " in told
    assert "\x1b" not in told
    assert "You said: hello" in told


@pytest.fixture
def talking(url: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a chat whose agent is in the middle of a long reply."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start(TARGET, "--name", "writer", "--session", "s", url=url, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("talk\n")
        process.stdin.flush()
        told = ""
        while "word20 " not in told:
            piece = process.stdout.read(1)
            assert piece, told
            told += piece
        yield process
        process.kill()


async def test_a_reply_is_continued_after_kill_9(url: str, talking: subprocess.Popen[str]) -> None:
    talking.send_signal(signal.SIGKILL)
    talking.wait(PATIENCE_SECONDS)
    set_lease(url, system_clock() + 3_600_000)  # however long the next process takes to start
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    with start(TARGET, "--name", "writer", "--session", "s", url=url, **pipes) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline(), process.stdout.readline()]
        assert "Another process has this session" in shown[1]
        set_lease(url, 1)
        shown.append(process.communicate(timeout=PATIENCE_SECONDS)[0])
    assert WORDS in shown[2]
    assert await stored(url) == ("completed", ["talk", WORDS])


def set_lease(url: str, lease_until: int) -> None:
    """Set when the lease of the session's run expires."""
    with sqlite3.connect(url.removeprefix("sqlite:"), timeout=PATIENCE_SECONDS) as database:
        database.execute("UPDATE __agents_runs SET lease_until = ?", (lease_until,))
    database.close()


async def test_ctrl_c_stops_a_reply_and_not_the_chat(url: str) -> None:
    ours, theirs = pty.openpty()
    terminal = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    more = {"start_new_session": True, "preexec_fn": _take_terminal}
    with start(TARGET, "--name", "writer", "--session", "s", url=url, **terminal, **more) as process:
        os.close(theirs)
        for wait_for, then in [("> ", "talk\n"), ("word20", "\x03"), ("(stopped", "hello\n"), ("said: hello", "\x04")]:
            _read_until(ours, wait_for)
            os.write(ours, then.encode())
        _read_until(ours, "To continue")
        assert process.wait(PATIENCE_SECONDS) == 0
    os.close(ours)
    status, said = await stored(url)
    assert status == "completed"
    assert said[0] == "talk"
    assert WORDS.startswith(said[1])
    assert len(said[1]) < len(WORDS)
    assert said[2:] == ["hello", "You said: hello"]


def _take_terminal() -> None:
    """Make the terminal that standard input is the controlling one, so that Ctrl-C is a signal that is not ignored."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _read_until(terminal: int, text: str) -> None:
    told = ""
    while text not in told:
        assert select.select([terminal], [], [], PATIENCE_SECONDS)[0], told
        told += os.read(terminal, 1024).decode(errors="replace")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tests.cli.chatty:writer"], "has no model"),
        (["tests.cli.chatty:nobody"], "Known agents: none"),
        ([TARGET], "pass --name. Known agents: other, writer."),
        ([TARGET, "--name", "nobody"], "has no agent 'nobody'. Known agents: other, writer."),
        (["tests.cli.chatty:WORDS"], "is not an executor"),
        (["nonsense"], "module:name"),
        (["tests.cli.chatty:writer", "--model", "nobody:x"], "Known providers"),
    ],
)
def test_what_cannot_be_talked_to_is_an_error_in_one_line(url: str, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        command(*arguments, url=url),
        cwd=ROOT,
        input="hello\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "HELIX_MODEL"},
    )
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_session_knows_its_agent(url: str) -> None:
    for arguments in (["--name", "other"], []):
        done = subprocess.run(
            command(TARGET, "--session", "s", *arguments, url=url),
            cwd=ROOT,
            input="hi\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.stdout.startswith("other, session s.")
        assert "You said: hi" in done.stdout


def test_without_a_name_a_demo_agent_replies(url: str) -> None:
    done = subprocess.run(
        command(url=url), cwd=ROOT, input="hi\n", capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert "You said: hi" in done.stdout
