"""docs/benchmarks.md and its plots, from the figures. Where another one is better, our figure is bold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.all.contestants import OURS
from benchmarks.all.figures import Figures, StepCost
from benchmarks.all.plot import bar_plot, line_plot

HEAD = """# Benchmarks

Written by `./dev bench all` on {date}: {machine}; the disk syncs a page in {sync:,.0f} µs. Run it on a quiet machine
to repeat it. Frameworks run in environments of their own, take turns and are compared by medians; the model is instant,
so what is measured is the framework. Where another one is better than ours, **our figure is bold**.

Versions: {versions}.

`./dev bench` lists the benchmarks behind this page, each against a hand-written baseline.
"""


def write(figures: Figures, docs: Path) -> None:
    """Write the page and its plots."""
    (docs / "benchmarks.md").write_text(page(figures), encoding="utf-8")
    for name, text in plots(figures).items():
        (docs / "images" / f"bench-{name}.svg").write_text(text, encoding="utf-8")


def page(figures: Figures) -> str:
    """Return the page."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(figures.versions.items()))
    head = HEAD.format(date=figures.date, machine=figures.machine, sync=figures.sync_micros, versions=versions)
    failed = [f"Not measured, since the benchmark failed: {', '.join(figures.failed)}.\n"] if figures.failed else []
    sections = [
        (figures.steps, _steps),
        (figures.growth, _growth),
        (figures.readers, _readers),
        (figures.sse, _sse),
        (figures.listing, _listing),
    ]
    return "\n".join([head, *failed, *(part for rows, make in sections if rows for part in make(figures))])


def _steps(figures: Figures) -> list[str]:
    names = _names([row.milliseconds for row in figures.steps])
    rows = [
        [
            _case(row),
            *_cells(row.milliseconds, names, lambda value: f"{value:.2f}"),
        ]
        for row in figures.steps
    ]
    return [
        "## A step\n\nMilliseconds from one model call to the next, with tools that do nothing. With a database, each "
        "framework stores what it stores, at its own defaults: ours syncs every step to disk, with the stream, and "
        "stores finished calls before the step ends; LangGraph writes checkpoints in the background, "
        "and with *(sync)* waits for them, as ours does; the OpenAI Agents "
        "SDK stores the items of each step; pydantic-ai brings no database, so the benchmark saves messages by hand "
        "after the run, as its documentation does, and a crash loses the run.\n",
        _table(["", *names], rows),
        "\n![A step by framework](images/bench-steps.svg)\n",
    ]


def _case(row: StepCost) -> str:
    return f"{row.tools} {'tool' if row.tools == 1 else 'tools'}, {row.database or 'nothing stored'}"


def _growth(figures: Figures) -> list[str]:
    parts = [
        "\n## A long session\n\nOne session in SQLite. *Resume*: a new process opens the database and calls the "
        "model for the next turn.\n"
    ]
    names = _names([row.kilobytes for row in figures.growth])
    for title, field in (
        ("kB on disk", "kilobytes"),
        ("ms per step, last tenth", "late_step_ms"),
        ("ms to resume", "resume_ms"),
    ):
        rows = [
            [f"{row.steps:,} steps", *_cells(getattr(row, field), names, lambda value: f"{value:,.1f}")]
            for row in figures.growth
        ]
        parts += [_table([title, *names], rows), ""]
    return [*parts, "![Storage by steps](images/bench-storage.svg)\n"]


def _readers(figures: Figures) -> list[str]:
    names = sorted({name for row in figures.readers for name in row.per_second})
    rows = [[f"{row.readers:,}", *(f"{row.per_second[name]:,.0f}" for name in names)] for row in figures.readers]
    head = (
        "\n## Readers of a stream\n\nDeliveries per second to readers in one process; each must get every chunk once.\n"
    )
    return [head, _table(["readers", *names], rows), "\n![Deliveries by readers](images/bench-readers.svg)\n"]


def _sse(figures: Figures) -> list[str]:
    rows = [
        [
            f"{row.clients:,}",
            _ours(row.per_second, row.bare_per_second, "{:,.0f}", higher=True),
            f"{row.bare_per_second:,.0f}",
        ]
        for row in figures.sse
    ]
    p50, p99 = figures.sse_delay_ms
    head = (
        "\n## Server-Sent Events\n\nDeliveries per second from one server process, beside a bare Starlette app that "
        "sends the same bytes from memory, each event by itself; ours sends events that wait in one piece.\n"
    )
    note = (
        f"\nA chunk reaches a client {p50:.1f} ms after it is written (median), {p99:.1f} ms at the 99th percentile, "
        "with 100 clients and 50 chunks per second.\n"
    )
    return [head, _table(["clients", OURS, "bare app"], rows), note]


def _listing(figures: Figures) -> list[str]:
    names = [*figures.listing[0].page_ms] if figures.listing else []
    rows = [[f"{row.sessions:,}", *(f"{row.page_ms[name]:.2f}" for name in names)] for row in figures.listing]
    head = "\n## Listing sessions\n\nMilliseconds for a keyset page of 20 without a count, on SQLite.\n"
    return [head, _table(["sessions", *names], rows), "\n![A page by sessions](images/bench-listing.svg)\n"]


def plots(figures: Figures) -> dict[str, str]:
    """Return the plots by name."""
    found: dict[str, str] = {}
    if figures.steps:
        groups = {_case(row): row.milliseconds for row in figures.steps}
        found["steps"] = bar_plot("A step, by framework", "milliseconds", groups)
    if figures.growth:
        names = _names([row.kilobytes for row in figures.growth])
        series = {name: [(float(row.steps), row.kilobytes[name]) for row in figures.growth] for name in names}
        found["storage"] = line_plot("Storage of one session", "steps", "kB", series)
    if figures.readers:
        backends = sorted(figures.readers[0].per_second)
        series = {name: [(float(row.readers), row.per_second[name]) for row in figures.readers] for name in backends}
        found["readers"] = line_plot("Readers of one stream", "readers", "deliveries per second", series)
    if figures.listing:
        filters = [*figures.listing[0].page_ms]
        series = {name: [(float(row.sessions), row.page_ms[name]) for row in figures.listing] for name in filters}
        found["listing"] = line_plot("A page of 20 sessions", "sessions", "milliseconds", series)
    return found


def _names(rows: Sequence[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _cells(values: Mapping[str, float], names: Sequence[str], form: Callable[[float], str]) -> list[str]:
    """Return one cell per framework; ours is bold if another one is lower."""
    best = min(values.values())
    return [
        ("**{}**" if name == OURS and values[name] > best else "{}").format(form(values[name]))
        if name in values
        else "-"
        for name in names
    ]


def _ours(mine: float, other: float, form: str, *, higher: bool) -> str:
    lost = mine < other if higher else mine > other
    return f"**{form.format(mine)}**" if lost else form.format(mine)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
