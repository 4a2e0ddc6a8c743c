"""Errors: what each means, what it says, what it carries, and what a client of the server gets."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

from helix_agents import errors
from helix_agents.errors import HelixError
from helix_agents.server import problems

from .markdown import code, table
from .meanings import FIXES


def error_classes() -> list[type[HelixError]]:
    """Return all errors, bases first, in the order of the source."""
    return [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, HelixError)]


def errors_page() -> str:
    """Return the page of all errors."""
    tree = textwrap.dedent((errors.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
    parts = [
        "# Errors",
        "Every error the library raises on purpose is a `HelixError`. Messages say what happened, to which object, "
        "and what to do about it; words in braces are filled in. The error of a database driver is the `__cause__`.",
        f"```text\n{tree}\n```",
    ]
    return "\n\n".join([*parts, *(error_section(each) for each in error_classes())]) + "\n"


def error_section(error: type[HelixError]) -> str:
    """Return the section of one error."""
    rows = [["base", ", ".join(code(base.__name__) for base in error.__bases__)]]
    if "__init__" in vars(error):
        rows += [["message", code(message)] for message in messages_of(error)]
        carried = [name for name in inspect.signature(error.__init__).parameters if name not in ("self", "message")]
        rows += [["carries", ", ".join(code(name) for name in carried)]] if carried else []
    rows.append(["what to do", FIXES[error.__name__]])
    if (status := http_status(error)) is not None:
        rows.append(["over HTTP", f"{status} {code(snake_case(error.__name__))}"])
    return f"## {error.__name__}\n\n{inspect.getdoc(error)}\n\n{table(['', ''], rows)}"


def messages_of(error: type[HelixError]) -> list[str]:
    """Return the sentences that the constructor passes on, with the names of what is filled in."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(error)))
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__"
    ]
    found = [_template(call.args[0]) for call in calls if call.args]
    return [each for each in found if " " in each]


def _template(node: ast.expr) -> str:
    match node:
        case ast.JoinedStr(values=values):
            return "".join(_template(value) for value in values)
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value).removeprefix("self.") + "}"
    return ""


def snake_case(name: str) -> str:
    """Return the code of an error on the wire."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def http_status(error: type[HelixError]) -> int | None:
    """Return the status with which the server reports the error; None if clients never see it."""
    return problems.STATUS_OF.get(error)
