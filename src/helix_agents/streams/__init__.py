"""Live delivery of chunks: the contract, and the code that all backends share."""

from .contract import StoredChunk, StreamInfo, StreamManager, StreamOutcome, StreamReader, StreamWriter

__all__ = ["StoredChunk", "StreamInfo", "StreamManager", "StreamOutcome", "StreamReader", "StreamWriter"]
