"""Blobs on our own backends."""
