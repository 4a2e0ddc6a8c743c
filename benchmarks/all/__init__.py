"""`./dev bench all`: every published figure, into docs/benchmarks.md. See `__main__`."""
