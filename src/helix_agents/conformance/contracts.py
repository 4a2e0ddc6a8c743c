"""Which checks apply to a harness: the checks of every contract for which it overrides a method.

Importing this module fills all registries. A harness for several contracts is one class with several of these methods.
With `open_stores`, the library's executor runs on your stores: crashes, takeovers, approvals, interrupts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import state  # noqa: F401  # importing the checks of the StateStore contract fills their registry
from .blobs.checks import BLOB_STORE
from .executor import EXECUTOR
from .harness import STATE_STORE, Harness
from .memory.checks import MEMORY_STORE
from .registry import Check, Registry
from .streams import STREAM_MANAGER
from .usage import lives  # noqa: F401  # registers its checks
from .usage.checks import USAGE_STORE

DOORS: tuple[tuple[str, Registry[Any]], ...] = (
    ("open", STATE_STORE),
    ("open_streams", STREAM_MANAGER),
    ("open_usage", USAGE_STORE),
    ("open_memory", MEMORY_STORE),
    ("open_blobs", BLOB_STORE),
    ("open_stores", EXECUTOR),
)
"""The method that a harness overrides to be checked for a contract, and the checks of that contract."""


def checks_for(harness: object, only: Iterable[str] = ()) -> list[Check[Any]]:
    """Return the checks for a harness or a harness class, limited to those that `only` selects.

    Raises `ValueError` for a word that selects nothing, and for a harness that overrides none of the methods.
    """
    registries = [registry for name, registry in DOORS if _overrides(harness, name)]
    if not registries:
        raise ValueError(f"{harness!r} is not a harness: it has none of {', '.join(name for name, _ in DOORS)}.")
    wanted = {word.strip() for word in only if word.strip()}
    unknown = wanted - set().union(*(registry.words() for registry in registries))
    if unknown:
        raise ValueError(f"No check of this harness has the guarantee, kind or name {', '.join(sorted(unknown))}.")
    everything = [check for registry in registries for check in registry.select()]
    return [check for check in everything if not wanted or wanted & {check.guarantee, check.kind, check.name}]


def _overrides(harness: object, method_name: str) -> bool:
    kind = harness if isinstance(harness, type) else type(harness)
    method = getattr(kind, method_name, None)
    return callable(method) and method is not getattr(Harness, method_name)
