"""Ids are unique, also among forked processes, and whatever seeds the shared generator."""

from __future__ import annotations

import os
import random

import pytest

from helix_agents.clock import pause_seconds, random_id
from helix_agents.ids import checkpoint_id, checkpoint_time


def test_ids_are_32_hexadecimal_digits_and_differ() -> None:
    ids = {random_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in ids)


def test_seeding_the_shared_generator_does_not_repeat_ids() -> None:
    random.seed(1)
    first = random_id()
    random.seed(1)
    assert random_id() != first


def test_a_forked_process_goes_on_with_other_ids() -> None:
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sending, random_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receiving, 32).decode() != random_id()
    os.close(receiving)
    os.close(sending)


def test_a_checkpoint_id_tells_session_step_and_time() -> None:
    assert checkpoint_id("s", 3, 17, "abcdef0123") == "cpv1-s-s3-t17-abcdef"


@pytest.mark.parametrize("session_id", ["s", "a-s1-t2-x", "cpv1-s"])
@pytest.mark.parametrize("unique", ["abcdef0123", "id-1", "-t9-"])
def test_the_time_of_a_checkpoint_is_read_from_its_id(session_id: str, unique: str) -> None:
    assert checkpoint_time(session_id, checkpoint_id(session_id, 3, 17, unique)) == 17


@pytest.mark.parametrize(
    "foreign", ["", "cpv1-s", "cpv1-s-s3-t-abcdef", "cpv1-other-s3-t17-abcdef", "cpv1-o-s3-t17-abcdef", "cpv1-s-s3-t17"]
)
def test_an_id_that_no_checkpoint_of_the_session_can_have_tells_no_time(foreign: str) -> None:
    assert checkpoint_time("s", foreign) is None


def test_pauses_differ_grow_and_stay_short() -> None:
    first, later = [{pause_seconds(attempt) for _ in range(200)} for attempt in (0, 1000)]
    assert len(first) == len(later) == 200
    assert 0 <= max(first) <= 0.001 < max(later) <= 0.05
