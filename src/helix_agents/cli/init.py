"""`helix init`: write a project to start from. Its files are in `project/`."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path
from typing import Any

from .output import say
from .project_files import project_name, write_files

FILES = {
    "app.py": "app.py.txt",
    "test_app.py": "test_app.py.txt",
    "pyproject.toml": "pyproject.toml.txt",
    ".env.example": "env.txt",
    ".gitignore": "gitignore.txt",
}
"""Where a file goes, and where its text is."""

NEXT = """\
Wrote {names} to {folder}.

{enter}  python -m pytest                       its tests
  helix chat app:make_executor           talk to the agent here, without a model at first
  helix serve app:make_executor          serve it, with a page that shows what it does

For a real model, copy .env.example to .env and fill it in."""


def add_init(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "init",
        help="write a project to start from: an agent, its tools and tests",
        description="Write a project to start from: an agent, its tools and tests. Overwrites nothing.",
    )
    parser.add_argument("folder", nargs="?", default=".", help="where to (default: here)")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    folder = Path(given.folder)
    templates = files(__package__).joinpath("project")
    texts = {target: templates.joinpath(source).read_text(encoding="utf-8") for target, source in FILES.items()}
    name = project_name(folder)
    write_files(folder, {target: text.replace("PROJECT_NAME", name) for target, text in texts.items()})
    is_here = given.folder == "."
    where, enter = ("this folder", "") if is_here else (folder, f"  cd {folder}\n")
    say(NEXT.format(names=", ".join(FILES), folder=where, enter=enter))
    return 0
