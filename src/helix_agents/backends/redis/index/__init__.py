"""Indexes that find sessions: by their properties, and by whether a worker can claim them."""
