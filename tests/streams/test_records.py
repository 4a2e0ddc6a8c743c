"""Records of streams: readers get copies, and only flat chunks are decoded once."""

from __future__ import annotations

from helix_agents.streams.records import NewChunk, StoredText, StreamStart, fill_in, fresh_chunks


def test_a_reader_cannot_change_what_another_reads() -> None:
    rows = [StoredText(1, 0, '{"type":"x"}'), StoredText(2, 0, '{"type":"y","d":[1]}')]
    fill_in(rows)
    first = fresh_chunks(rows)
    first[0]["type"] = "changed"
    first[1]["d"].append(2)
    assert fresh_chunks(rows) == [{"type": "x"}, {"type": "y", "d": [1]}]


def test_only_a_chunk_without_mutable_values_is_shared() -> None:
    texts = ['{"a":1}', '{"a":[1]}', '{"a":{}}', '{"a":"[ in a string"}']
    rows = [StoredText(number, 0, text) for number, text in enumerate(texts)]
    fill_in(rows)
    assert [row.chunk is not None for row in rows] == [True, False, False, False]


def test_the_chunks_of_a_new_turn_come_after_its_marker() -> None:
    marker = NewChunk(0, "{}")
    starts = [StreamStart("s", "i", marker, 1, 0, latest) for latest in (None, 0, 7)]
    assert [start.sequence for start in starts] == [0, 1, 8]
