"""Streams in SQL tables."""
