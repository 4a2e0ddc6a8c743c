"""Load variables from a file `.env` in the current folder: API keys of models, `HELIX_URL`. Variables that are already
set win."""

from __future__ import annotations

import os
import re
from pathlib import Path

LINE = re.compile(r"""\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^#\r\n]*?))\s*(?:#.*)?""")


def load_env(path: Path | None = None) -> None:
    """Set the variables of the file that are not set yet. A no-op without a file."""
    try:
        text = (path or Path(".env")).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for line in text.splitlines():
        if found := LINE.fullmatch(line):
            name, *values = found.groups()
            value = next((each for each in values if each is not None), "")
            if "\0" not in value:
                os.environ.setdefault(name, value)
