"""Write the files of a new project, for `helix init` and `helix cloudflare`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..errors import InvalidArgument


def project_name(folder: Path) -> str:
    """Return a project name for this folder: lower case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "app"


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files, by path. Raises `InvalidArgument`, and writes nothing, if one of them exists."""
    if taken := [name for name in texts if (folder / name).exists()]:
        raise InvalidArgument(f"{folder} already has {', '.join(taken)}: nothing was written. Choose another folder.")
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
