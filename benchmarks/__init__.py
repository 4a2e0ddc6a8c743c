"""Measurements, each against a raw baseline in the same run: `python -m benchmarks.<name>`."""
