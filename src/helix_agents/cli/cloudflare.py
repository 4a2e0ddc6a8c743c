"""`helix cloudflare`: write a Worker project for either runtime, or the bridge Worker. Deploying is wrangler's job."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path
from typing import Any

from .output import say
from .project_files import project_name, write_files

RUNTIMES = ("durable-object", "workflow")
PROJECT = {
    "src/entry.py": "{runtime}/entry.py.txt",
    "src/page.py": "page.py.txt",
    "wrangler.jsonc": "{runtime}/wrangler.jsonc.txt",
    "pyproject.toml": "{runtime}/pyproject.toml.txt",
    "README.md": "{runtime}/README.md.txt",
}
"""Where a file goes, and where its text is, below `worker_project/`."""

BRIDGE = ("bridge.mjs", "wrangler.jsonc")
SOURCE = """
[tool.uv.sources]
helix-agents = {{ path = "{checkout}" }}
"""
"""Builds the library from a checkout instead of a release."""


def add_cloudflare(commands: Any) -> None:
    """Add the command with its verbs."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "cloudflare", help="write a Python Worker for an agent, or the bridge to D1 and Durable Objects"
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    init: argparse.ArgumentParser = verbs.add_parser(
        "init",
        help="write a Python Worker with an agent and a page",
        description="Write a Python Worker with an agent and a page. Overwrites nothing. See its README.",
    )
    init.add_argument("folder", nargs="?", default=".", help="where to (default: here)")
    init.add_argument(
        "--runtime",
        choices=RUNTIMES,
        default=RUNTIMES[0],
        help="durable-object: each session is an object (default); workflow: sessions in D1, runs as Workflows",
    )
    init.add_argument("--checkout", metavar="PATH", help="build helix-agents from a checkout, relative to the folder")
    init.set_defaults(run=_init)
    bridge: argparse.ArgumentParser = verbs.add_parser(
        "bridge",
        help="write the Worker behind d1:// and do:// addresses",
        description="Write the Worker that lets Python elsewhere use D1 and Durable Objects. Overwrites nothing.",
    )
    bridge.add_argument("folder", nargs="?", default=".", help="where to (default: here)")
    bridge.set_defaults(run=_bridge)


def _init(given: argparse.Namespace) -> int:
    folder = Path(given.folder)
    templates = files(__package__).joinpath("worker_project")
    source = SOURCE.format(checkout=given.checkout) if given.checkout else ""
    texts = {}
    for target, template in PROJECT.items():
        place = template.format(runtime=given.runtime.replace("-", "_"))
        text = templates.joinpath(*place.split("/")).read_text(encoding="utf-8")
        texts[target] = text.replace("PROJECT_NAME", project_name(folder)).replace("SOURCE", source)
    write_files(folder, texts)
    say(f"Wrote {', '.join(texts)} to {folder}.")
    say("README.md says how to deploy it, and what to edit.")
    return 0


def _bridge(given: argparse.Namespace) -> int:
    home = files("helix_agents.backends.cloudflare").joinpath("bridge_worker")
    write_files(Path(given.folder), {name: home.joinpath(name).read_text(encoding="utf-8") for name in BRIDGE})
    say(f"Wrote {', '.join(BRIDGE)} to {given.folder}.")
    say("For d1:// put the id from `npx wrangler d1 create agent-state` into wrangler.jsonc; else delete that line.")
    say("Deploy it with: npx wrangler secret put TOKEN && npx wrangler deploy")
    say("Then: export HELIX_CLOUDFLARE_TOKEN=... HELIX_URL=do://YOUR-BRIDGE.workers.dev/agents")
    return 0
