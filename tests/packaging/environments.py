"""Empty environments with the built package in them, on any Python of this machine."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
THIS_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LIMIT_SECONDS = 300


@functools.cache
def interpreter(version: str) -> str | None:
    """Return a Python of this version that starts: this one, one on the path, or one of pyenv."""
    if version == THIS_VERSION:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}*/bin/python{version}")))]
    return next((each for each in candidates if each and _starts(each)), None)


def _starts(program: str) -> bool:
    return subprocess.run([program, "-c", "import ssl, sqlite3"], capture_output=True).returncode == 0


@functools.cache
def installer() -> str:
    """Return the pinned uv of ./dev."""
    found = sorted((ROOT / ".cache").glob("uv-*/bin/uv"), key=lambda path: path.stat().st_mtime)
    assert found, "run ./dev setup first"
    return str(found[-1])


def build(folder: Path) -> Path:
    """Build wheel and sdist into the folder; return the wheel."""
    run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), cwd=ROOT)
    return next(folder.glob("*.whl"))


class Environment:
    """A virtual environment that holds the wheel, some extras and nothing else."""

    def __init__(self, folder: Path, wheel: Path, *, version: str = THIS_VERSION, extras: str = "") -> None:
        self.folder = folder
        python = interpreter(version)
        if python is None:
            pytest.skip(f"this machine has no Python {version}")
        self._uv("venv", "--quiet", "--no-project", "--python", python, str(folder))
        self.python = str(folder / "bin" / "python")
        wanted = f"helix-agents[{extras}] @ {wheel.as_uri()}" if extras else str(wheel)
        pins = folder / "pins.txt"  # as tested, not as newest; of other Pythons only what has a wheel there
        pins.write_text(re.sub(r" \\\n    --hash=\S+", "", (ROOT / "requirements" / "dev.txt").read_text()))
        self._uv("pip", "install", "--quiet", "--python", self.python, "--constraint", str(pins), wanted)

    def run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; it sees nothing of this checkout."""
        program = str(self.folder / "bin" / command[0])
        return run(program, *command[1:], cwd=cwd, check=False)

    def _uv(self, *arguments: str) -> None:
        run(installer(), *arguments, cwd=self.folder.parent)


def run(*command: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of this machine, but without the environment of the tests."""
    hidden = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV", "HELIX_URL")
    values = {name: value for name, value in os.environ.items() if name not in hidden}
    values |= {"UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "true"}
    values.setdefault("UV_CACHE_DIR", str(ROOT / ".cache" / "uv"))
    if "UV_DEFAULT_INDEX" not in values and (index := _pip_index()):
        values["UV_DEFAULT_INDEX"] = index
    done = subprocess.run(command, cwd=cwd, env=values, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done


@functools.cache
def _pip_index() -> str | None:
    base = str(getattr(sys, "_base_executable", None) or sys.executable)
    listing = subprocess.run([base, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    found = re.search(r"^(?::env:|install|global)\.?\.index-url='?([^'\n]+)", listing, re.MULTILINE)
    return found and found[1]
