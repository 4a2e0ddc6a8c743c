"""Writing a run's chunks to its stream, and following the stream of a session."""
