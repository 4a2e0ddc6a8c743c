"""Keys of Redis: one hash tag per session, and names that sort correctly and round-trip."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from helix_agents.backends.redis.keys import (
    SessionKeys,
    StreamKeys,
    checked_prefix,
    digest_of,
    labels_of,
    member_of,
    session_of,
    short_checkpoint_id,
)
from helix_agents.errors import InvalidArgument
from helix_agents.types import SessionState


def test_all_keys_of_a_session_have_its_hash_tag() -> None:
    keys = SessionKeys("app", "s")
    every = [*keys.all_static, keys.list_of("f"), keys.object_of("f"), keys.shelf("x")]
    assert all(key.startswith("app:") and ":{s}" in key for key in every)
    assert len(set(every)) == len(every)
    assert keys.places[keys.main] == 1


def test_a_stream_knows_the_session_of_its_name() -> None:
    assert StreamKeys.of("app", "s").session == SessionKeys("app", "s").main


def test_members_of_an_index_sort_by_age_and_come_back() -> None:
    pairs = [(5, "b"), (10, "a:1"), (10, "b")]
    members = [member_of(*pair) for pair in pairs]
    assert members == sorted(members)
    assert [session_of(member) for member in members] == pairs


def test_labels_do_not_depend_on_the_status_and_their_digest_notices_a_change() -> None:
    session = SessionState("s", "a", user_id="u", tags=("y", "x", "x"), metadata={"k": "v"})
    labels = labels_of(session)
    assert labels[:6] == ["all", "agent=a", "roots", "user=u", "tag=x", "tag=y"]
    assert labels_of(replace(session, status="completed")) == labels
    assert digest_of(session) == digest_of(replace(session, status="completed"))
    assert digest_of(session) != digest_of(replace(session, tags=("x",)))


@pytest.mark.parametrize("prefix", ["", ":::", "a{b", "a}"])
def test_a_prefix_that_would_move_the_hash_tag_is_rejected(prefix: str) -> None:
    with pytest.raises(InvalidArgument):
        checked_prefix(prefix)


def test_shared_parts_are_left_out() -> None:
    assert checked_prefix("app:") == "app"
    assert short_checkpoint_id("s", "cpv1-s-s1-t2-x") == "s1-t2-x"
    assert short_checkpoint_id("s", "imported") == "imported"
