"""Dictionaries: the readable reference, for tests and for a single process that need not survive."""
