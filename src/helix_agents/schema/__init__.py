"""JSON schemas of Python functions and types."""
