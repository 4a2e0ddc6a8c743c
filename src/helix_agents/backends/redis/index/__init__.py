"""Indexes that find sessions: by what they are, and by whether a worker can claim them."""
