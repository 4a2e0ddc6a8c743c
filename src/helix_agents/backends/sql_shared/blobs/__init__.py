"""Blobs in SQL tables."""
