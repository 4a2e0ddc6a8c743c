"""One server process: a folder, a port, and a life of start, stop, kill -9 and restart.

Knows nothing of any particular server; subclasses say what to run and when it is ready.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypedDict

HOST = "127.0.0.1"
START_LIMIT_SECONDS = 30.0
STOP_LIMIT_SECONDS = 20.0
START_ATTEMPTS = 3
HIGHEST_PORT = 65535
LOG_TAIL_CHARS = 2000


class ServerUnavailable(Exception):
    """The server is not available on this machine; the message says why."""


class RunAs(TypedDict, total=False):
    """Arguments for `subprocess` that give up root."""

    user: int
    group: int
    extra_groups: list[int]


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user who runs servers that reject root; None if the current user is not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerUnavailable("Running as root, and there is no user 'postgres' or 'nobody' to run the server as.")


def run_as(user: pwd.struct_passwd | None) -> RunAs:
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def free_port(highest: int = HIGHEST_PORT, *, also: tuple[int, ...] = ()) -> int:
    """Return a loopback port that is free now, and whose neighbors at the offsets `also` are free as well."""
    while True:
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind((HOST, 0))
            port = int(first.getsockname()[1])
            if port > highest:
                continue
            with contextlib.suppress(OSError):
                for offset in also:
                    held.enter_context(socket.socket()).bind((HOST, port + offset))
                return port


def wait_until(ready: Callable[[], bool], what: str, *, limit_seconds: float = START_LIMIT_SECONDS) -> None:
    """Poll until the condition is true. There is no event to wait for in a foreign process."""
    deadline = time.monotonic() + limit_seconds
    while not ready():
        if time.monotonic() > deadline:
            raise ServerUnavailable(f"Waited {limit_seconds:g} s in vain: {what}.")
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
        return [int(line) for line in listed.split()]
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(entry) == pid]


def _stat(process: Path) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the name: state, parent, ... Empty when the process is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(process: Path) -> int | None:
    fields = _stat(process)
    return int(fields[1]) if fields else None


def is_alive(pid: int) -> bool:
    """Return whether a process still runs; a zombie does not."""
    fields = _stat(Path("/proc") / str(pid))
    if fields:
        return fields[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path("/proc/self/stat").exists()


def open_to_all_temp_dir(prefix: str, owner: pwd.struct_passwd | None) -> Path:
    """Return a new folder of `owner`, below a folder that this user can reach."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        folder = Path(place).resolve()
        reachable = owner is None or all(parent.stat().st_mode & 0o001 for parent in (folder, *folder.parents))
        if folder.is_dir() and reachable:
            made = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
            if owner is not None:
                os.chown(made, owner.pw_uid, owner.pw_gid)
            return made
    raise ServerUnavailable(f"No temporary folder that the user {owner.pw_name if owner else ''!r} can reach.")


class Watchdog:
    """Kills a server and removes its folder if this process dies without stopping it, even by kill -9.

    A shell waits on a pipe from this process. A line means a clean stop; an end of file means that this process died.
    """

    def __init__(self, group: int, folder: Path) -> None:
        script = 'read -r line || { kill -9 "-$1"; rm -rf -- "$2"; }'
        self._shell: subprocess.Popen[bytes] = subprocess.Popen(
            ["sh", "-c", script, "watchdog", str(group), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        self._shell.communicate(b"done\n")


class ServerProcess(ABC):
    """A private server. `with` starts it and removes every trace; between the two it may be killed and restarted."""

    def __init__(self, *, name: str, port: int, user: pwd.struct_passwd | None = None) -> None:
        self.name = name
        self.port = port
        self.user = user
        self.folder = open_to_all_temp_dir(f"test-{name}-", user)
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return what to run, in the foreground."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server responds to requests; False also when it cannot be reached."""

    @abstractmethod
    def new_port(self) -> int:
        """Choose another port when another process took ours first."""

    stop_signal = signal.SIGTERM
    start_limit_seconds = START_LIMIT_SECONDS

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder), "LANG": "C", "TZ": "UTC"}

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Return the end of what the server wrote."""
        path = self.folder / "log"
        return path.read_text(errors="replace")[-LOG_TAIL_CHARS:] if path.exists() else ""

    def start(self) -> None:
        """Start with a fresh or existing folder. A first start whose port was taken chooses another."""
        for _ in range(START_ATTEMPTS):
            with (self.folder / "log").open("ab") as log:
                self._launch(log)
            try:
                what = f"{self.name} on port {self.port} to start"
                wait_until(self._ready_or_dead, what, limit_seconds=self.start_limit_seconds)
            except ServerUnavailable:
                self.kill9()
                raise
            if self.is_running:
                return
            self._forget()
            if "in use" not in self.log() or (self.folder / "started").exists():
                break
            self.port = self.new_port()
        raise ServerUnavailable(f"{self.name} died at start:\n{self.log()}")

    def _launch(self, log: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            self.command(),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **run_as(self.user),
        )
        self._watchdog = Watchdog(self._process.pid, self.folder)

    def _ready_or_dead(self) -> bool:
        if not self.is_running:
            return True
        if not self.is_ready():
            return False
        (self.folder / "started").touch()
        return True

    def kill9(self) -> None:
        """Kill the process immediately; data that the kernel already has survives."""
        if self.is_running:
            family = [self.pid, *children_of(self.pid)]
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap(family)
        self._forget()

    def shut_down(self) -> None:
        """Ask the server to end, and kill it when it does not."""
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(STOP_LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill9()
        self._forget()

    def _reap(self, family: list[int]) -> None:
        assert self._process is not None
        self._process.wait()
        # Orphans may hold the port or shared memory for a moment longer.
        wait_until(lambda: not any(is_alive(pid) for pid in family[1:]), f"children of {self.name} to end")

    def _forget(self) -> None:
        self._process = None
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None

    def restart(self) -> None:
        """Start again on the same port with the same data; a running server is shut down first."""
        self.shut_down()
        self.start()

    def stop(self) -> None:
        """End the process and remove its folder."""
        self.shut_down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
