"""Live delivery of chunks: the contract, and what all backends share."""
