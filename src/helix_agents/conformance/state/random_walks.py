"""Random sequences of operations, compared with an independent model."""

from __future__ import annotations

import itertools
from typing import Any, cast

from ...stores.state.contract import StateStore
from ..harness import STATE_STORE, Harness
from .model.walk import random_walk

check = STATE_STORE.check


class _InTurn:
    """Several store objects on the same data, used in turn, so that their caches are often outdated."""

    def __init__(self, stores: list[StateStore]) -> None:
        self._stores = itertools.cycle(stores)

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._stores), name)


@check("model", "random operations on one store object match the model", kind="random")
async def store_follows_the_model(harness: Harness) -> None:
    await random_walk(await harness.open(), harness.options.seed, harness.options.steps)


@check("model", "random operations that alternate between several store objects match the model", kind="random")
async def stores_follow_the_model_in_turn(harness: Harness) -> None:
    stores = _InTurn([await harness.open() for _ in range(3)])
    await random_walk(cast(StateStore, stores), harness.options.seed + 1, harness.options.steps)
