"""Line plots with two logarithmic axes, and bar plots, as SVG on white: readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 36, 44
BAR = 16
COLORS = ("#14606b", "#c0582b", "#6a4fa3", "#4d7c2f", "#8a6d1d")

Series = Mapping[str, Sequence[tuple[float, float]]]


def line_plot(title: str, x_label: str, y_label: str, series: Series) -> str:
    """Return a plot of named series of (x, y), all above zero."""
    points = [point for line in series.values() for point in line]
    x_scale = _scale([x for x, _ in points], LEFT, WIDTH - RIGHT)
    y_scale = _scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        *_frame(f"{title} ({y_label})", HEIGHT),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, anchor="middle"),
    ]
    for value in _ticks([x for x, _ in points]):
        parts += [_grid(x_scale(value), TOP, x_scale(value), HEIGHT - BOTTOM)]
        parts += [_text(x_scale(value), HEIGHT - BOTTOM + 16, _short(value), anchor="middle")]
    for value in _ticks([y for _, y in points]):
        parts += [_grid(LEFT, y_scale(value), WIDTH - RIGHT, y_scale(value))]
        parts += [_text(LEFT - 6, y_scale(value) + 4, _short(value), anchor="end")]
    for number, (name, line) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        path = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_scale(x):.1f}" cy="{y_scale(y):.1f}" r="3" fill="{color}"/>' for x, y in line]
        parts += _legend(number, name)
    return "\n".join([*parts, "</svg>", ""])


def bar_plot(title: str, unit: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Return horizontal bars on a linear axis, by group and by name, each with its value."""
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    longest = max(value for values in groups.values() for value in values.values())
    left, y, parts = 150, TOP, []
    for group, values in groups.items():
        parts.append(_text(left - 8, y + BAR * len(values) / 2 + 4, group, anchor="end"))
        for name, value in values.items():
            length = value / longest * (WIDTH - RIGHT - left - 40)
            color = COLORS[names.index(name) % len(COLORS)]
            parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR - 3}" fill="{color}"/>')
            parts.append(_text(left + length + 5, y + BAR - 5, f"{value:.2f}"))
            y += BAR
        y += BAR
    legend = [part for number, name in enumerate(names) for part in _legend(number, name)]
    return "\n".join([*_frame(f"{title} ({unit})", y), *parts, *legend, "</svg>", ""])


def _frame(title: str, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        _text(12, 18, title, weight="600"),
    ]


def _legend(number: int, name: str) -> list[str]:
    x, y, color = WIDTH - RIGHT + 14, TOP + 18 * number, COLORS[number % len(COLORS)]
    return [f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"/>', _text(x + 16, y + 9, name)]


def _scale(values: Sequence[float], start: float, end: float):  # type: ignore[no-untyped-def]
    ticks = _ticks(values)
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    span = (high - low) or 1.0
    return lambda value: start + (math.log10(value) - low) / span * (end - start)


def _ticks(values: Sequence[float]) -> list[float]:
    """Return powers of ten around the values."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="#222">{escape(text)}</text>'
    )


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
