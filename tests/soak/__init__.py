"""Soak: sessions under faults for minutes, and a checker that reads behind the stores. `./dev soak --help`."""
