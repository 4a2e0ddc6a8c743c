"""The table of docs/faults.md: one row per backend, of its latest long run."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from tests.soak.run import Report

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- soak: written by ./dev soak --publish -->\n", "<!-- end of soak -->"


def row_of(report: Report, date: datetime.date) -> str:
    """Return a report as a row."""
    faults = ", ".join(f"{count} {name}" for name, count in report.faults.items())
    figures = [
        f"{report.seconds / 60:g}",
        f"{report.sessions:,}",
        f"{report.turns:,}",
        f"{report.chunks_read:,}",
        f"{sum(report.faults.values()):,} ({faults})",
        f"**{len(report.violations)}**",
    ]
    return f"| {report.backend} | {date} | " + " | ".join(figures) + " |\n"


def with_report(page: str, report: Report, date: datetime.date) -> str:
    """Return the page with the row of this backend replaced, or added."""
    before, rest = page.split(BEGIN)
    table, after = rest.split(END)
    table = re.sub(rf"^\| {report.backend} \|.*\n", "", table, flags=re.MULTILINE)
    return before + BEGIN + table + row_of(report, date) + END + after


def publish(report: Report) -> None:
    """Write a report into the page."""
    today = datetime.datetime.now(datetime.UTC).date()
    PAGE.write_text(with_report(PAGE.read_text(encoding="utf-8"), report, today), encoding="utf-8")
