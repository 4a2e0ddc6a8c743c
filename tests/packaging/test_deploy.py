"""The container and the services of deploy/: built and run where Docker works; elsewhere, their commands run."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml  # type: ignore[import-untyped]

from tests.packaging.environments import ROOT, Environment
from tests.servers.process import free_port, wait_until

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
TOKEN = "a-token-of-the-tests"
PATIENCE_SECONDS = 60
BUILD_LIMIT_SECONDS = 800


def command_of(service: str) -> list[str]:
    """Return the command of a service, with the defaults of its variables."""
    words = map(str, COMPOSE["services"][service]["command"])
    return ["helix", *(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in words)]


def health_check(port: str) -> list[str]:
    """Return the health check of the image, for another port."""
    check = json.loads(DOCKERFILE.partition("HEALTHCHECK")[2].partition("CMD ")[2].splitlines()[0])
    return [word.replace(":8000/", f":{port}/") for word in check]


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with what the image installs."""
    (extras,) = re.findall(r"helix-agents\[([^\]]+)\]", DOCKERFILE)
    return Environment(tmp_path_factory.mktemp("image") / "env", wheel, extras=extras)


@contextmanager
def running(image: Environment, command: list[str], folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a service; end it as Docker does, and insist that it ends well."""
    program = str(image.folder / "bin" / command[0])
    environment = {"PATH": os.defpath, "HOME": str(folder), "HELIX_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1", **variables}
    process = subprocess.Popen([program, *command[1:]], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def call(port: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Call the server as its owner."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"http://127.0.0.1:{port}{path}", data, headers), timeout=PATIENCE_SECONDS) as response:
        found: dict[str, Any] = json.load(response)
        return found


def test_the_services_run_without_docker(image: Environment, postgres_url: str, tmp_path: Path) -> None:
    assert COMPOSE["services"]["serve"]["environment"]["HELIX_URL"].startswith("postgresql://")
    with running(image, [*command_of("migrate")], tmp_path, HELIX_URL=postgres_url) as migration:
        assert migration.wait(PATIENCE_SECONDS) == 0
    serve = command_of("serve")
    serve[serve.index("--port") + 1] = "0"
    with (
        running(image, serve, tmp_path, HELIX_URL=postgres_url) as server,
        running(image, command_of("worker"), tmp_path, HELIX_URL=postgres_url),
    ):
        assert server.stdout is not None
        port = server.stdout.readline().partition(" at http://")[2].split()[0].rstrip(".").rpartition(":")[2]
        assert image.run(*health_check(port), cwd=tmp_path).returncode == 0
        call(port, "/execute", {"agent_type": "assistant", "message": "Hello", "session_id": "s"})
        assert call(port, "/result/s?wait=30")["status"] == "completed"
    assert image.run(*health_check(port), cwd=tmp_path).returncode != 0


def test_the_image_has_what_its_commands_need() -> None:
    stages = DOCKERFILE.split("\nFROM ")
    assert 'ENTRYPOINT ["helix"]' in stages[-1]
    assert re.search(r"^USER \d+$", stages[-1], re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for name in " ".join(copied).split():
        assert f"!{name}" in ignored, f"{name} is not sent to Docker"
        assert (ROOT / name).exists()


@pytest.fixture
def docker() -> str:
    """The program, where its engine runs."""
    program = shutil.which("docker")
    if program is None or subprocess.run([program, "info"], capture_output=True).returncode != 0:
        pytest.skip("Docker does not run on this machine")
    return program


def test_the_image_is_built_and_the_services_start(docker: str) -> None:
    port, project = str(free_port()), f"helix-test-{uuid.uuid4().hex[:8]}"
    environment = {**os.environ, "HELIX_PORT": port, "HELIX_TOKEN": TOKEN, "POSTGRES_PASSWORD": "secret"}
    compose = [docker, "compose", "--project-name", project, "--file", "deploy/compose.yaml"]

    def run(*arguments: str) -> None:
        done = subprocess.run([*compose, *arguments], cwd=ROOT, env=environment, timeout=BUILD_LIMIT_SECONDS)
        assert done.returncode == 0

    def is_healthy() -> bool:
        try:
            return call(port, "/healthz")["status"] == "ok"
        except OSError:
            return False

    try:
        run("up", "--build", "--detach")
        wait_until(is_healthy, "the server in its container", limit_seconds=PATIENCE_SECONDS)
        call(port, "/execute", {"agent_type": "assistant", "message": "Hello", "session_id": "s"})
        assert call(port, "/result/s?wait=30")["status"] == "completed"
    finally:
        run("down", "--volumes", "--rmi", "local")
