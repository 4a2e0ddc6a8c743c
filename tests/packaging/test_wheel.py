"""The wheel: what is in it, and that it works where nothing else is installed."""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, VERSIONS, Environment, run

MAX_BYTES = 2_000_000
SEES_THE_WHOLE_TREE = "schema or dockerfile or threat or skill or tree or links"
"""Tests that read files from everywhere in the project."""
EXTRAS: dict[str, tuple[str, ...]] = {
    "postgres": ("helix_agents.postgres",),
    "redis": ("helix_agents.redis",),
    "server": ("helix_agents.server", "helix_agents.cli.serve"),
    "openai": ("helix_agents.llm.openai",),
    "anthropic": ("helix_agents.llm.anthropic",),
    "google": ("helix_agents.llm.gemini",),
    "otel": ("helix_agents.telemetry.spans",),
    "cloudflare": ("helix_agents.backends.cloudflare.bridge",),
    "temporal": ("helix_agents.runtimes.temporal",),
    "dbos": ("helix_agents.runtimes.dbos",),
    "mcp": ("helix_agents.mcp",),
    "schedules": ("cronsim", "tzdata"),
}
"""What each extra is for."""
USES = {extra: f"import {modules[-1]}" for extra, modules in EXTRAS.items()} | {
    "schedules": "from helix_agents.executor.later.timetable import timetable; timetable(0, cron='0 9 * * *')"
}
"""What fails without the extra: an import, or the first cron expression."""


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_is_small_and_holds_the_package_alone(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_BYTES
    names = names_in(wheel)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"helix_agents"}
    assert "helix_agents/py.typed" in names
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    missing = {name for name in source if "__pycache__" not in name} - set(names)
    assert missing == set()


def test_the_source_archive_holds_the_whole_project(wheel: Path) -> None:
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a checkout")
    listed = run("git", "-c", "safe.directory=*", "ls-files", cwd=ROOT).stdout.splitlines()
    assert {name for name in listed if (ROOT / name).exists()} - names == set()
    assert not [name for name in names if name.endswith((".db", ".pyc"))]


def test_the_source_archive_can_test_itself(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    files = ("tests/packaging/test_release.py", "tests/architecture", "tests/test_docs.py")
    done = run(
        sys.executable, "-m", "pytest", "-q", "-n0", *files, "-k", SEES_THE_WHOLE_TREE, cwd=unpacked, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_extra_is_checked_here() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) - {"all"} == set(EXTRAS)
    assert (
        f"helix-agents[{','.join(project['optional-dependencies'])}]".replace(",all]", "]")
        in (project["optional-dependencies"]["all"])
    )


def test_the_readme_names_every_extra() -> None:
    named = (ROOT / "README.md").read_text(encoding="utf-8").partition("\nExtras: ")[2].partition("\n\n")[0]
    assert [extra for extra in (*EXTRAS, "all") if f"`{extra}`" not in named] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_demo_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path, version: str) -> None:
    environment = Environment(tmp_path / "env", wheel, version=version)
    installed = environment.run("python", "-c", LIST_INSTALLED, cwd=tmp_path)
    assert installed.stdout.split() == ["helix-agents", "msgspec"]
    shown = environment.run("helix", "--version", cwd=tmp_path)
    assert shown.stdout.startswith("helix-agents ")
    demo = environment.run("helix", "demo", cwd=tmp_path)
    assert demo.returncode == 0, demo.stderr
    assert "equal those of an undisturbed run" in demo.stdout


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_alone_is_enough(wheel: Path, tmp_path: Path, extra: str, version: str) -> None:
    environment = Environment(tmp_path / "env", wheel, version=version, extras=extra)
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    done = environment.run("python", "-c", program, *EXTRAS[extra], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


LIST_INSTALLED = """
from importlib.metadata import distributions
print(*sorted(each.name for each in distributions()))
"""


def test_a_missing_extra_is_named(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env", wheel)
    for extra, program in USES.items():
        done = environment.run("python", "-c", program, cwd=tmp_path)
        assert done.returncode == 1, extra
        assert f"helix-agents[{extra}]" in done.stderr, done.stderr
