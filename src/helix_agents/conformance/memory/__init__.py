"""The checks of the MemoryStore contract."""
