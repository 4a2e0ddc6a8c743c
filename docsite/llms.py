"""`llms.txt`: the pages of the site as one list, and as one text, for language models that help users."""

from __future__ import annotations

from pathlib import Path

from .navigation import Entry

SUMMARY = (
    "Durable agents for Python: sessions, streams and tool state that survive crashes, on the database you already run."
)


def outline(navigation: dict[str, list[Entry]], pages: Path) -> str:
    """Return the list of pages with what each is about."""
    lines = ["# Helix Agents", "", f"> {SUMMARY}", ""]
    for section, entries in navigation.items():
        lines += [f"## {section}", ""]
        for entry in entries:
            about = entry.about or first_sentence((pages / entry.page).read_text(encoding="utf-8"))
            lines.append(f"- [{entry.title}]({entry.page.removesuffix('.md')}.html): {about}")
        lines.append("")
    return "\n".join(lines)


def full_text(navigation: dict[str, list[Entry]], pages: Path) -> str:
    """Return all pages, one after the other."""
    entries = [entry for section in navigation.values() for entry in section]
    return "\n\n---\n\n".join((pages / entry.page).read_text(encoding="utf-8").strip() for entry in entries) + "\n"


def first_sentence(page: str) -> str:
    """Return the first sentence below the title."""
    paragraphs = [
        part.strip()
        for part in page.split("\n\n")
        if part.strip() and not part.lstrip().startswith(("#", "```", "|", "<"))
    ]
    text = " ".join(paragraphs[0].split()) if paragraphs else ""
    return text.partition(". ")[0].rstrip(".:") + "."
