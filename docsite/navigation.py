"""The order of the pages. It is written once, in docs/index.md, as headings with lists of links."""

from __future__ import annotations

import re
from typing import NamedTuple

LINK = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+\.md)\)(?:: (?P<about>.+))?$")
NAVIGATION_FROM = "## "


class Entry(NamedTuple):
    """One page of the navigation."""

    title: str
    page: str
    about: str


def read_navigation(index: str) -> dict[str, list[Entry]]:
    """Return the pages by section, in the order of the index."""
    sections: dict[str, list[Entry]] = {}
    section = ""
    for line in index.splitlines():
        if line.startswith(NAVIGATION_FROM):
            section = line.removeprefix(NAVIGATION_FROM).strip()
        elif link := LINK.match(line):
            sections.setdefault(section, []).append(Entry(link["title"], link["page"], link["about"] or ""))
    return sections


def with_toctrees(index: str) -> str:
    """Return the index with the hidden tables of contents that Sphinx builds its sidebar from."""
    trees = []
    for section, entries in read_navigation(index).items():
        pages = "\n".join(f"{entry.title} <{entry.page.removesuffix('.md')}>" for entry in entries)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {section}\n\n{pages}\n```\n")
    return index + "\n" + "\n".join(trees)
