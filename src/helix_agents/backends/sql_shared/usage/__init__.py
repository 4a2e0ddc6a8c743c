"""Usage entries in SQL tables."""
