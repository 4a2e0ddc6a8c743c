"""How long and with which seed the kit runs. Defaults take seconds; `HELIX_SOAK=1` searches for rare failures."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field


def _seed() -> int:
    given = os.environ.get("HELIX_SEED")
    return int(given) if given else secrets.randbits(32)


def _soaking() -> bool:
    return os.environ.get("HELIX_SOAK") == "1"


@dataclass(frozen=True)
class Options:
    """`seed` starts every random choice; `steps` is the length of a random walk."""

    seed: int = field(default_factory=_seed)
    steps: int = field(default_factory=lambda: 5000 if _soaking() else 250)
    tasks: int = 16
    processes: int = 4
    openers: int = field(default_factory=lambda: 20 if _soaking() else 8)
