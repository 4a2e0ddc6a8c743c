"""Blobs: bytes beside a conversation, addressed by their content."""
