"""The registry of the stream checks. Nothing in here may import a backend."""

from __future__ import annotations

from ..harness import Harness
from ..registry import Registry

STREAM_MANAGER: Registry[Harness] = Registry()
"""Every check of the StreamManager contract."""
