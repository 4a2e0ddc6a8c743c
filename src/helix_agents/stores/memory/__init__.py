"""The memory store: what agents remember about people and things, found by full text."""
