"""Checks of the StreamManager contract (T1 to T10). Importing this package fills `STREAM_MANAGER`."""

from __future__ import annotations

from . import (
    bad_input,
    t1_sequence,
    t2_random,
    t2_wholeness,
    t3_producer,
    t4_flush,
    t5_end,
    t6_retention,
    t7_rewind,
    t7_walk,
    t8_fanout,
    t9_slow,
    t10_fence,
)
from .harness import STREAM_MANAGER

__all__ = [
    "STREAM_MANAGER",
    "bad_input",
    "t1_sequence",
    "t10_fence",
    "t2_random",
    "t2_wholeness",
    "t3_producer",
    "t4_flush",
    "t5_end",
    "t6_retention",
    "t7_rewind",
    "t7_walk",
    "t8_fanout",
    "t9_slow",
]
