"""Options of store addresses: the names from the code, what they mean from the pages of the backends."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from .markdown import code, table

DOCS = Path(__file__).parents[2] / "docs"
BACKENDS = {
    "inmemory": ("memory:", "in-memory.md"),
    "sqlite": ("sqlite:path.db", "sqlite.md"),
    "postgres": ("postgresql://user:password@host/database", "postgres.md"),
    "redis": ("redis://user:password@host:6379/0", "redis.md"),
    "cloudflare": ("d1://:TOKEN@host/DB, do://:TOKEN@host/NAME", "cloudflare.md"),
}
"""By package: how an address looks, and the page that explains its options."""

HEAD = "| option of the address |"
STREAMS = "sqlite.md"
"""The page that explains the options of all backends for streams."""


def options_of(backend: str) -> tuple[list[str], list[str]]:
    """Return the options of a backend's addresses: its own, and those that it passes to its client."""
    opening = import_module(f"helix_agents.backends.{backend}.opening")
    return sorted(opening.OPTIONS), sorted(getattr(opening, "CLIENT_OPTIONS", ()))


def meanings(page: str) -> dict[str, tuple[str, str]]:
    """Return what the table of a page says about options: the meaning and the default."""
    found: dict[str, tuple[str, str]] = {}
    text = (DOCS / page).read_text(encoding="utf-8") if page else ""
    for row in text.partition(HEAD)[2].partition("\n\n")[0].splitlines():
        cells = [each.strip() for each in row.strip("|").split("|")]
        if name := re.fullmatch(r"`(\w+)`", cells[0]):
            found[name[1]] = (cells[-2], cells[-1])
    return found


def undocumented() -> list[str]:
    """Return the options that no page explains."""
    streams = meanings(STREAMS)
    return [
        f"{backend}: {name}"
        for backend, (_, page) in BACKENDS.items()
        for name in options_of(backend)[0]
        if name not in {**streams, **meanings(page)}
    ]


def options_page() -> str:
    """Return every backend with its options."""
    parts = [
        "# Addresses of stores",
        "`open_stores(url)`, `--url` and `HELIX_URL` take the same addresses: "
        "`scheme:place?option=value&option=value`. An unknown option is an error that names the known ones. "
        "Percent-encode `/ ? # @ :` in a password.",
    ]
    for backend, (example, page) in BACKENDS.items():
        own, passed_on = options_of(backend)
        known = {**meanings(STREAMS), **meanings(page)}
        rows = [[code(name), *known.get(name, ("", ""))] for name in own]
        more = f"See [{page.removesuffix('.md')}](../{page})." if page else ""
        if passed_on:
            more += " Passed on to the client library: " + ", ".join(code(name) for name in passed_on) + "."
        parts.append(f"## {backend}\n\n{code(example)}\n\n{table(['option', 'meaning', 'default'], rows)}\n\n{more}")
    return "\n\n".join(parts) + "\n"
