"""Read parameter descriptions from a docstring: the `Args:` section of the Google style."""

from __future__ import annotations

import inspect
import re

_HEADING = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def split_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the text without its parameter section, and the description of each parameter."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    start = next((number for number, line in enumerate(lines) if _HEADING.fullmatch(line)), None)
    if start is None:
        return "\n".join(lines), {}
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    text = "\n".join([*lines[:start], *lines[end:]]).strip()
    return text, _parameters(lines[start + 1 : end])


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name, indent = "", 0
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        match = _PARAMETER.fullmatch(line.strip())
        if match is not None and (not name or depth <= indent):
            name, indent = match[1], depth
            found[name] = match[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
