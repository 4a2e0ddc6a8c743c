"""The command line `helix`: operate stores on any backend, given their address.

Each group of commands has its file, with an `add_...` function that `main.py` calls. `command.py` makes a command and
opens its stores (existing ones, unless the command creates them), `output.py` prints, `targets.py` finds the executor
that a command works with.
"""

from .main import main

__all__ = ["main"]
