"""workerd as a private server: the bridge Worker on a free port, with its own folder."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from helix_agents.backends import cloudflare
from tests.cloudflare.parts import HOST, PINS, library_archive, wheels, workflows_javascript
from tests.servers.node import environment, node, packages
from tests.servers.process import ServerProcess, free_port

BRIDGE = Path(cloudflare.__file__).parent / "bridge_worker" / "bridge.mjs"
INSIDE = Path(__file__).parent / "inside"
EXAMPLES = Path(__file__).parents[2] / "examples"
BOOT_SECONDS = 300.0
DATABASES = 24
"""How many D1 databases the bridge has; each check of the kit takes one or two, and leaves them empty."""


class Runtime(NamedTuple):
    """A workerd, by the group of npm packages that has it, and a compatibility date that it knows."""

    group: str
    compatibility_date: str


RUNTIMES = {
    "declared": Runtime("workers", "2026-10-01"),
    "latest-date": Runtime("workers", "2026-10-23"),
    "older": Runtime("workers-old", "2026-04-01"),
}
"""The date that the examples declare, on the newest workerd; the last date that this one knows; and an older workerd
with the date that the bridge declares."""
RUNTIME = RUNTIMES[os.environ.get("HELIX_WORKERD", "declared")]
"""What all tests use: `HELIX_WORKERD=older ./dev test tests/cloudflare` runs them on another one."""


class PythonWorker(NamedTuple):
    """A module, and the classes in it by their names in `env`."""

    source: Path
    objects: Mapping[str, str]
    workflows: Mapping[str, str] = MappingProxyType({})


KIT = PythonWorker(INSIDE / "kit_worker.py", {"CHECKS": "Checks", "STREAMS": "Streams"})
AGENTS = PythonWorker(INSIDE / "agent_worker.py", {"OBJECTS": "Agents"})
FLOWS = PythonWorker(
    INSIDE / "flow_worker.py",
    {"FLOW_STREAMS": "StreamServer", "STRANGERS": "Stranger"},
    {"FLOWS": "Flow", "HASTY_FLOWS": "HastyFlow", "LONG_FLOWS": "LongFlow"},
)
MODELS = PythonWorker(INSIDE / "model_worker.py", {})
ASSISTANT = PythonWorker(EXAMPLES / "worker" / "src" / "entry.py", {"ASSISTANTS": "Assistant"})
WORKFLOW = PythonWorker(
    EXAMPLES / "workflow" / "src" / "entry.py", {"STREAMS": "StreamServer"}, {"AGENT_WORKFLOW": "AgentRun"}
)


class Workerd(ServerProcess):
    """A Worker under miniflare. `script` is the launcher in `host/`."""

    script = "bridge.mjs"
    start_limit_seconds = 120.0  # node has much to read before it listens

    def __init__(self, *, runtime: Runtime = RUNTIME) -> None:
        super().__init__(name="workerd", port=free_port())
        self.token = secrets.token_hex(8)
        self.runtime = runtime
        packages(runtime.group)

    def command(self) -> list[str]:
        return [str(node()), str(HOST / self.script)]

    def new_port(self) -> int:
        return free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **environment(HOME=str(self.folder)),
            "NODE_MODULES": str(packages(self.runtime.group) / "node_modules"),
            "PORT": str(self.port),
            "TOKEN": self.token,
            "FOLDER": str(self.folder),
            "BRIDGE": str(BRIDGE),
            "DATABASES": str(DATABASES),
            "COMPATIBILITY_DATE": self.runtime.compatibility_date,
        }

    def is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/bare", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


class PythonWorkerd(Workerd):
    """Python Workers: stock Pyodide inside workerd, with the library. Each gets the requests below `/{its module}`."""

    script = "python.mjs"
    start_limit_seconds = BOOT_SECONDS

    def __init__(
        self,
        *workers: PythonWorker,
        beside: Sequence[Path] = (),
        pins: Sequence[Path] = (PINS,),
        runtime: Runtime = RUNTIME,
    ) -> None:
        super().__init__(runtime=runtime)
        self._workers = workers
        pages = [page for worker in workers if (page := worker.source.with_name("page.py")).exists()]
        self._sources = [*(worker.source for worker in workers), *pages, *beside]
        archives = self.folder / "archives"
        archives.mkdir()
        for wheel in (wheel for each in pins for wheel in wheels(each).iterdir()):
            shutil.copy(wheel, archives)
        library_archive(archives / "helix_agents.zip")
        (self.folder / "workflows.js").write_bytes(workflows_javascript())

    def is_ready(self) -> bool:
        """Return whether Python has started, for which the first request waits.

        Only one request waits: while Python starts, nothing is read, and workerd closes connections that were not
        read for 15 seconds.
        """
        try:
            urllib.request.urlopen(f"{self.url}/ready", timeout=BOOT_SECONDS).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "ARCHIVES": str(self.folder / "archives"),
            "SOURCES": ":".join(str(source) for source in self._sources),
            "SDK": str(self.folder / "workflows.js"),
            "WORKERS": json.dumps(
                [
                    {"module": each.source.stem, "objects": dict(each.objects), "workflows": dict(each.workflows)}
                    for each in self._workers
                ]
            ),
        }
