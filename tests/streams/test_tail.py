"""What the live end of a stream keeps in memory: a bounded piece of it, without a gap."""

from __future__ import annotations

from helix_agents.streams.records import StoredText, StreamHead, StreamPage
from helix_agents.streams.tail import LARGE_CHARS, MAX_TAIL_CHARS, MAX_TAIL_ROWS, MAX_TAKE_ROWS, Tail


async def nothing(after: int) -> StreamPage | None:
    raise AssertionError("nobody follows this stream")


def tail_of(*sizes: int) -> Tail:
    rows = [StoredText(sequence, 1, "x" * size) for sequence, size in enumerate(sizes, 1)]
    head = StreamHead("s", "i", "active", 0, len(rows), 0, 1, len(rows), None, None, 0, 0, 0)
    return Tail(nothing, head, 0, StreamPage(head, rows))


async def test_a_tail_drops_its_older_half_when_it_has_too_many_rows() -> None:
    tail = tail_of(*[1] * (MAX_TAIL_ROWS + 1))
    assert (tail.start, tail.end) == (MAX_TAIL_ROWS + 1 - MAX_TAIL_ROWS // 2, MAX_TAIL_ROWS + 1)
    assert [row.sequence for row in tail.take(tail.start)] == [tail.start + 1 + n for n in range(MAX_TAKE_ROWS)]


async def test_a_tail_drops_large_rows_and_keeps_the_last() -> None:
    tail = tail_of(MAX_TAIL_CHARS, 10, 10)
    assert [row.sequence for row in tail.take(tail.start)] == [2, 3]
    tail = tail_of(10, MAX_TAIL_CHARS)
    assert (tail.start, [row.sequence for row in tail.take(tail.start)]) == (1, [2])
    tail = tail_of(2 * MAX_TAIL_CHARS)
    assert (tail.start, [row.sequence for row in tail.take(0)]) == (0, [1])


async def test_large_rows_are_handed_out_one_at_a_time() -> None:
    tail = tail_of(LARGE_CHARS + 1, 1, 1)
    assert [row.sequence for row in tail.take(0)] == [1]
    tail = tail_of(LARGE_CHARS, 1, 1)
    assert [row.sequence for row in tail.take(0)] == [1, 2, 3]
