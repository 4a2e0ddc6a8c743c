"""What a run writes to its stream, and how a stream is followed."""
