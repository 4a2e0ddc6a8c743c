"""Dictionaries: the readable reference implementation, for tests and for a single process without durability."""
