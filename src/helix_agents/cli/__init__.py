"""The command line `helix`: what an operator does with stores, on any backend, by address.

One file a group of commands, each with an `add_...` that `main.py` calls. `command.py` makes a command and gives it its
stores (existing ones as they are, unless it says that it creates them), `output.py` prints, `targets.py` finds the
executor that a command works with.
"""

from .main import main

__all__ = ["main"]
