"""The public names with their parameters and fields, one per line: `python -m tests.packaging.api` writes api.txt."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from docsite.reference.python import (
    MODULES,
    contracts_of,
    field_rows,
    load,
    public_methods,
    public_names,
    shown_default,
)

PINNED = Path(__file__).with_name("api.txt")
HEAD = (
    "# Written by `python -m tests.packaging.api`. What changes here changes users' programs: say so in CHANGELOG.md.\n"
)


def listing() -> str:
    """Return every public name of every public module."""
    return HEAD + "".join(f"{line}\n" for module in MODULES for line in module_lines(module.name))


def module_lines(name: str) -> Iterator[str]:
    """Return the lines of a module."""
    module = import_module(name)
    for public in sorted(public_names(module)):
        value = load(module, public)
        home = getattr(value, "__module__", name)
        if name == MODULES[0].name or not hasattr(import_module(MODULES[0].name), public):
            yield from object_lines(f"{name}.{public}", value, home)
        else:
            yield f"{name}.{public}"


def object_lines(path: str, value: Any, home: str) -> Iterator[str]:
    """Return the lines of a function or a class; of other libraries' classes only the name."""
    if inspect.isroutine(value):
        yield path + parameters(value)
        return
    if not inspect.isclass(value) or not home.startswith("helix_agents"):
        yield path
        return
    yield path + ("" if is_abstract(value) else parameters(value))
    for row in field_rows(value):
        yield f"{path}.{row[0].strip('`')}"
    promised = {method for contract in contracts_of(value) for method, _ in public_methods(contract)}
    for method, member in sorted(public_methods(value)):
        if method in promised:
            continue  # it is pinned once, at the contract
        yield f"{path}.{method}{'' if isinstance(member, property) else parameters(member)}"


def is_abstract(value: type) -> bool:
    """Return whether a class is only a base, or an error: how these are made is not for users."""
    return inspect.isabstract(value) or getattr(value, "_is_protocol", False) or issubclass(value, BaseException)


def parameters(value: Any) -> str:
    """Return the parameters of a call with their defaults, without types."""
    target = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    try:
        found = [each for name, each in inspect.signature(target).parameters.items() if name not in ("self", "cls")]
    except (TypeError, ValueError):
        return "(...)"
    plain = [each.replace(annotation=inspect.Parameter.empty, default=_Shown.of(each.default)) for each in found]
    return str(inspect.Signature(plain))


class _Shown(str):
    """A default as it is shown in the reference."""

    @classmethod
    def of(cls, default: Any) -> Any:
        """Return the shown form; nothing where there is no default."""
        return default if default is inspect.Parameter.empty else cls(shown_default(default))

    def __repr__(self) -> str:
        return str(self)


if __name__ == "__main__":
    PINNED.write_text(listing(), encoding="utf-8")
