"""What a Python Worker needs beside the runtime: wheels for Pyodide, pinned by hash, and the library as one archive.

Node, workerd and Pyodide themselves come from `tests/servers/node.py`.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

from tests.servers.process import ServerUnavailable

ROOT = Path(__file__).resolve().parents[2]
HOST = Path(__file__).resolve().parent / "host"
CACHE = ROOT / ".cache"
PINS = ROOT / "requirements" / "worker.txt"
MODEL_PINS = ROOT / "requirements" / "worker-models.txt"
FETCH_LIMIT_SECONDS = 300
FOR_PYODIDE = (
    *("--python-version", "3.14", "--implementation", "cp", "--abi", "cp314", "--abi", "none"),
    *("--platform", "pyemscripten_2026_0_wasm32", "--platform", "any"),
)


@cache
def wheels(pins: Path = PINS) -> Path:
    """Return a folder with the wheels of a file of pins, fetched once."""
    target = CACHE / f"worker-wheels-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "worker-wheels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            filling = target.with_suffix(".part")
            shutil.rmtree(filling, ignore_errors=True)
            _download(pins, filling)
            filling.rename(target)
    return target


def _download(pins: Path, folder: Path) -> None:
    base = getattr(sys, "_base_executable", None) or sys.executable
    command = [str(base), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", *FOR_PYODIDE, "-r", str(pins), "-d", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerUnavailable(f"pip could not fetch the wheels of a Python Worker: {error}") from error
    if done.returncode != 0:
        raise ServerUnavailable(f"pip could not fetch the wheels of a Python Worker: {done.stderr[-800:]}")


def workflows_javascript() -> bytes:
    """Return the part of the SDK for Workflows that is JavaScript."""
    (sdk,) = wheels().glob("workers_runtime_sdk-*.whl")
    with zipfile.ZipFile(sdk) as archive:
        return archive.read("workers/workflows.js")


def library_archive(path: Path) -> Path:
    """Return the library itself as one archive, as a Worker gets it."""
    source = ROOT / "src"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for each in sorted((source / "helix_agents").rglob("*")):
            if each.is_file() and "__pycache__" not in each.parts:
                archive.write(each, each.relative_to(source))
    return path
