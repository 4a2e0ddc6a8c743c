"""The client's JSDoc types are complete and right: TypeScript accepts the file, and a program that uses it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers import node
from tests.servers.fixtures import without_server
from tests.servers.process import ServerUnavailable

CLIENT = Path(__file__).parents[2] / "src" / "helix_agents" / "server" / "client" / "client.js"
OPTIONS = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2023", "--module", "nodenext"]
PAGE = """
import { Helix, Problem } from "./client.js";
const chat = new Helix({ token: () => "token" }).open("chat-1", { agent: "companion" });
const stop: () => void = chat.subscribe(({ messages, questions, link, status }) => {
  const texts: string[] = messages.map((message) => `${message.role}: ${message.content}`);
  for (const question of questions) if (question.kind === "approval") void chat.answer(question, { approved: true });
  if (link instanceof Problem) console.log(link.code, texts, status);
});
const { run_id }: { run_id: string } = await chat.send("Hello", { if_running: "enqueue" });
for (const branch of await chat.branches()) await chat.switchTo(branch.branch_id);
await chat.edit("m1", run_id);
"""


@pytest.fixture(scope="module")
def typescript() -> Path:
    try:
        return node.packages("types") / "node_modules" / "typescript" / "bin" / "tsc"
    except ServerUnavailable as error:
        without_server(str(error))


def complaints(typescript: Path, folder: Path, program: str) -> str:
    """Return what the compiler says about the client and a program beside it."""
    shutil.copy(CLIENT, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "page.ts").write_text(program)
    command = [str(node.node()), str(typescript), *OPTIONS, "client.js", "page.ts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_the_client_and_a_program_that_uses_it_are_accepted(typescript: Path, tmp_path: Path) -> None:
    assert complaints(typescript, tmp_path, PAGE) == ""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("{ approved: true }", "{ approved: 1 }"),
        ('chat.edit("m1", run_id)', "chat.edit(1, run_id)"),
        ('"companion" });', '"companion", retries: 3 });'),
        ('question.kind === "approval"', 'question.kind === "approvals"'),
    ],
)
def test_a_program_that_uses_it_wrongly_is_not(typescript: Path, tmp_path: Path, right: str, wrong: str) -> None:
    assert right in PAGE
    assert "page.ts" in complaints(typescript, tmp_path, PAGE.replace(right, wrong))
