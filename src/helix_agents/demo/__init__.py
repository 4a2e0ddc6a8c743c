"""`helix demo`: a research agent on SQLite that is killed in the middle of a step, and finished by another process."""

from .show import add_demo_arguments, run_demo

__all__ = ["add_demo_arguments", "run_demo"]
