"""What users deploy passes `wrangler deploy --dry-run`: the bridge, and both examples with the library vendored."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.cloudflare.parts import library_archive, wheels
from tests.cloudflare.workerd import BRIDGE, EXAMPLES
from tests.servers.node import environment, node, packages

LIMIT_SECONDS = 240
MAX_GZIP_KIB = 3_000
"""What a Worker may have on the Free plan."""


def dry_run(folder: Path) -> str:
    wrangler = packages("wrangler") / "node_modules" / "wrangler" / "bin" / "wrangler.js"
    done = subprocess.run(
        [str(node()), str(wrangler), "deploy", "--dry-run", "--outdir", "out"],
        cwd=folder,
        env=environment(HOME=str(folder), WRANGLER_SEND_METRICS="false", CI="1"),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_bridge(tmp_path: Path) -> None:
    told = dry_run(Path(shutil.copytree(BRIDGE.parent, tmp_path / "bridge")))
    assert "HelixObject" in told


@pytest.mark.parametrize(("example", "bound"), [("worker", ["Assistant"]), ("workflow", ["StreamServer", "AgentRun"])])
def test_an_example(tmp_path: Path, example: str, bound: list[str]) -> None:
    folder = Path(shutil.copytree(EXAMPLES / example, tmp_path / example))
    for archive in (*wheels().glob("*.whl"), library_archive(tmp_path / "library.zip")):
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder / "python_modules")
    told = dry_run(folder)
    assert all(name in told for name in bound), told
    size = re.search(r"gzip: ([\d.]+) KiB", told)
    assert size is not None
    assert float(size[1]) < MAX_GZIP_KIB
