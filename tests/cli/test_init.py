"""`helix init` writes a project that works as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from helix_agents.cli.environment import load_env

HELIX = str(Path(sys.executable).with_name("helix"))
PATIENCE_SECONDS = 120


def run(*command: str, cwd: Path, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as a newcomer would: nothing of ours in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HELIX_", "PYTEST_"))}
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        input=input,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    done = run(HELIX, "init", "My App!", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "helix chat app:make_executor" in done.stdout
    return tmp_path / "My App!"


def test_its_tests_pass(project: Path) -> None:
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_its_tests_notice_a_broken_tool(project: Path) -> None:
    text = (project / "app.py").read_text()
    assert ".append(text)" in text
    (project / "app.py").write_text(text.replace(".append(text)", ".append('?')"))
    assert run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project).returncode == 1


def test_it_is_complete(project: Path) -> None:
    assert {each.name for each in project.iterdir()} == {
        ".env.example",
        ".gitignore",
        "app.py",
        "pyproject.toml",
        "test_app.py",
    }
    assert 'name = "my-app"' in (project / "pyproject.toml").read_text()


def test_its_agent_can_be_talked_to_without_a_model(project: Path) -> None:
    done = run(HELIX, "chat", "app:make_executor", cwd=project, input="note milk\nclear\ny\n")
    assert done.returncode == 0, done.stderr
    assert "Done: 1 notes." in done.stdout
    assert "Done: no notes." in done.stdout


def test_an_agent_without_a_model_uses_the_only_executor_of_its_module(project: Path) -> None:
    done = run(HELIX, "chat", "app:agent", cwd=project, input="note milk\nclear\ny\n")
    assert done.returncode == 0, done.stderr
    assert "Done: 1 notes." in done.stdout
    assert "Done: no notes." in done.stdout


def test_an_agent_without_a_model_names_the_executors_that_have_one(project: Path) -> None:
    text = (project / "app.py").read_text()
    (project / "app.py").write_text(f"{text}\n\ndef other(stores: Stores) -> AgentExecutor: ...\n")
    done = run(HELIX, "chat", "app:agent", cwd=project)
    assert done.returncode == 1
    assert "run helix chat app:make_executor, or run helix chat app:other" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_agent_cannot_be_served_without_an_executor(project: Path) -> None:
    done = run(HELIX, "serve", "app:agent", cwd=project)
    assert done.returncode == 1
    assert "app:make_executor" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_agent_that_finds_a_model_in_env_needs_no_executor(project: Path) -> None:
    (project / ".env").write_text("HELIX_MODEL=openai:some-model\nOPENAI_API_KEY=none\n")
    done = run(HELIX, "chat", "app:agent", cwd=project, input="")
    assert done.returncode == 0, done.stderr
    assert "notes, session chat-" in done.stdout


def test_its_env_says_where_sessions_are(project: Path) -> None:
    example = (project / ".env.example").read_text()
    (project / ".env").write_text(example.replace("#HELIX_URL=sqlite:helix.db", "HELIX_URL=sqlite:mine.db"))
    run(HELIX, "chat", "app:make_executor", "--session", "s1", cwd=project, input="hello\n")
    assert (project / "mine.db").exists()
    assert not (project / "helix.db").exists()
    assert "s1" in run(HELIX, "sessions", "list", cwd=project).stdout


def test_it_is_served(project: Path) -> None:
    with subprocess.Popen(
        [HELIX, "serve", "app:make_executor", "--port", "0"], cwd=project, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found is not None
        agents = httpx.get(f"{found.group()}/agents", verify=False).json()["items"]
        process.terminate()
    assert [agent["name"] for agent in agents] == ["notes"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine")
    done = run(HELIX, "init", cwd=tmp_path)
    assert done.returncode == 1
    assert "app.py" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["app.py"]
    assert (tmp_path / "app.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("HELIX_TRY=one", "one"),
        ("export HELIX_TRY = one two # why", "one two"),
        ("HELIX_TRY='a # b'", "a # b"),
        ('HELIX_TRY="a # b" # c', "a # b"),
        ("HELIX_TRY=", ""),
        ("HELIX_TRY=a=b&c", "a=b&c"),
        ("#HELIX_TRY=one", None),
        ("HELIX TRY=one", None),
        ("HELIX_TRY", None),
    ],
)
def test_a_line_of_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, value: str | None) -> None:
    monkeypatch.setenv("HELIX_TRY", "to be restored")
    monkeypatch.delenv("HELIX_TRY")
    (tmp_path / ".env").write_text(f"# first\n\n{line}\nnonsense\n")
    load_env(tmp_path / ".env")
    assert os.environ.get("HELIX_TRY") == value
    monkeypatch.setenv("HELIX_TRY", "set before")
    load_env(tmp_path / ".env")
    assert os.environ["HELIX_TRY"] == "set before"


def test_a_file_that_is_not_text_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    load_env(tmp_path / ".env")
    load_env(tmp_path / "missing")
    assert "HELIX_TRY" not in os.environ
