"""Print the reference of a module as it is inside a Cloudflare Worker: `python -m docsite.worker_page MODULE`.

It runs in a process of its own, with empty stand-ins for the modules of the Workers runtime: nothing is called, only
signatures and docstrings are read.
"""

from __future__ import annotations

import sys
import types

from .reference.python import MODULES, module_page

RUNTIME = ("workers", "workers.workflows", "js", "pyodide", "pyodide.ffi", "pyodide.http")


class StandIn(types.ModuleType):
    """A module that has every name, each an empty class."""

    def __init__(self, name: str) -> None:
        """Make it a package, so that modules below it can be imported."""
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> type:
        """Return an empty class; nothing for what the import system asks for."""
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def main(module: str) -> None:
    """Print the page of a module."""
    sys.modules.update({name: StandIn(name) for name in RUNTIME})
    print(module_page(next(each for each in MODULES if each.name == module)), end="")


if __name__ == "__main__":
    main(sys.argv[1])
