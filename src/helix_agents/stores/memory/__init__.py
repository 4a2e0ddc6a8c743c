"""The memory store: what agents remember about people and things, found by full text."""

from .contract import Memory, MemoryStore

__all__ = ["Memory", "MemoryStore"]
