"""Ids are unique, also among processes that were forked from one another, and whoever seeds the shared generator."""

from __future__ import annotations

import os
import random

from helix_agents.clock import checkpoint_id, random_id


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
