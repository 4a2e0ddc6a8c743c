"""Sessions in SQL tables."""
