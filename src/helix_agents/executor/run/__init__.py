"""One run of a session, from its first step to its end."""
