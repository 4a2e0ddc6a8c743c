"""Runtimes: executor, stores and server assembled for one engine each. All of them use the same loop."""
