"""Small pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Return inline code."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def cell(text: str) -> str:
    """Return text that stays within a cell of a table."""
    return text.replace("\n", " ").replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; nothing if it has no rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines])


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site name it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
