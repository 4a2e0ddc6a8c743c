"""Screenshots as small files: the same picture in 256 colors, a third of the bytes."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

MAGIC = b"\x89PNG\r\n\x1a\n"
MOST_COLORS = 256
FREQUENT = 128


def in_few_colors(png: bytes) -> bytes:
    """Return a PNG of 8-bit RGB as one with a palette; colors that are not in it become the nearest one that is."""
    width, height = struct.unpack(">II", png[16:24])
    rows = [[row[at : at + 3] for at in range(0, len(row), 3)] for row in _rows(png, width, height)]
    used = Counter(color for row in rows for color in row)
    palette = _chosen(used)
    place = {color: _nearest(color, palette) for color in used}
    pixels = b"".join(b"\0" + bytes(place[color] for color in row) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b"")]
    return MAGIC + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def _chosen(used: Counter[bytes]) -> list[bytes]:
    """Return the colors that are frequent, and then, again and again, the one that is least like those: a hue is rare
    here."""
    palette = [color for color, _ in used.most_common(FREQUENT)]
    far = {color: min(_distance(color, each) for each in palette) for color in used}
    while len(palette) < MOST_COLORS and any(far.values()):
        palette.append(max(far, key=far.__getitem__))
        far = {color: min(before, _distance(color, palette[-1])) for color, before in far.items()}
    return palette


def _nearest(color: bytes, palette: list[bytes]) -> int:
    return min(range(len(palette)), key=lambda index: _distance(color, palette[index]))


def _distance(one: bytes, other: bytes) -> int:
    return (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2 + (one[2] - other[2]) ** 2


def _rows(png: bytes, width: int, height: int) -> Iterator[bytes]:
    """Yield the rows of pixels, with the filters of PNG undone."""
    assert png.startswith(MAGIC)
    assert tuple(png[24:26]) == (8, 2), "8-bit RGB, as browsers draw a page without transparency"
    packed = b"".join(data for kind, data in _chunks(png) if kind == b"IDAT")
    raw, length = zlib.decompress(packed), width * 3
    before = bytearray(length)
    for number in range(height):
        start = number * (length + 1)
        line = bytearray(raw[start + 1 : start + 1 + length])
        _unfilter(raw[start], line, before)
        yield bytes(line)
        before = line


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(MAGIC)
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += length + 12


def _unfilter(kind: int, line: bytearray, above: bytearray) -> None:
    if kind == 2:
        line[:] = bytes((value + up) & 255 for value, up in zip(line, above, strict=True))
    elif kind != 0:
        for at in range(len(line)):
            left, corner = (line[at - 3], above[at - 3]) if at >= 3 else (0, 0)
            line[at] = (line[at] + _guess(kind, left, above[at], corner)) & 255


def _guess(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 1:
        return left
    if kind == 3:
        return (left + up) // 2
    by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner
