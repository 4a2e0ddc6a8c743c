"""Along: the chunks that announce a commit are appended to those it carries."""

from __future__ import annotations

from collections.abc import Sequence

from helix_agents.stores.along import Along
from helix_agents.streams.records import Append, NewChunk, StreamStart

BEFORE, AFTER = NewChunk(1, "{}"), NewChunk(2, "[]")
APPEND = Append("stream", "producer", 1, [BEFORE], None, 0)


def announce(checkpoint_id: str, warnings: Sequence[str]) -> list[NewChunk]:
    return [NewChunk(1, f"{checkpoint_id} {list(warnings)}"), AFTER]


def test_announcements_come_last_and_count_as_after_the_checkpoint() -> None:
    made = Along(append=APPEND, news=announce, after=1).with_announcement("cp", ["lost"])
    assert made.append is not None
    assert [chunk.text for chunk in made.append.chunks] == ["{}", "cp ['lost']", "[]"]
    assert (made.append.counter, made.after, made.news) == (3, 3, None)


def test_without_announcements_nothing_changes() -> None:
    for along in (Along(), Along(append=APPEND), Along(news=announce)):
        assert along.with_announcement("cp", []) is along


def test_the_stream_is_that_of_the_chunks_or_of_the_new_turn() -> None:
    start = StreamStart("other", "i", BEFORE, 1, 0, None)
    assert [along.stream_id for along in (Along(), Along(append=APPEND), Along(start=start))] == [
        None,
        "stream",
        "other",
    ]
