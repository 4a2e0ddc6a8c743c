"""Memories in SQL tables."""
