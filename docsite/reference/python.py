"""Classes, functions and values: one page for each public module, from signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import subprocess
import sys
import textwrap
import typing
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from helix_agents import BlobStore, MemoryStore, StateStore, StreamManager, UsageStore

from .markdown import anchor, cell, code, table

CONTRACTS = (StateStore, StreamManager, UsageStore, MemoryStore, BlobStore)
ROOT = Path(__file__).parents[2]
DATA_MODEL = ROOT / "docs" / "data-model.md"
INSIDE_WORKER = "helix_agents.cloudflare"
NO_DEFAULT = (msgspec.NODEFAULT, inspect.Parameter.empty)


class PublicModule(NamedTuple):
    """A module that users import from."""

    name: str
    title: str


MODULES = (
    PublicModule("helix_agents", "Everything most programs need"),
    PublicModule("helix_agents.executor", "Runs"),
    PublicModule("helix_agents.tools", "Tools"),
    PublicModule("helix_agents.llm", "Models"),
    PublicModule("helix_agents.mcp", "Tools of MCP servers"),
    PublicModule("helix_agents.state", "State tracking"),
    PublicModule("helix_agents.streams", "Streams"),
    PublicModule("helix_agents.types", "What stores return"),
    PublicModule("helix_agents.content", "Images, files and other parts of messages"),
    PublicModule("helix_agents.history", "What a model sees of a long conversation"),
    PublicModule("helix_agents.limits", "Limits and prices"),
    PublicModule("helix_agents.stores.usage", "Usage entries and rollups"),
    PublicModule("helix_agents.stores.memory", "What agents remember"),
    PublicModule("helix_agents.stores.state.delegating", "Wrapping a state store"),
    PublicModule("helix_agents.telemetry", "Metrics and tracing"),
    PublicModule("helix_agents.operations", "Cleanup of expired sessions"),
    PublicModule("helix_agents.operations.workspaces", "Workspace providers"),
    PublicModule("helix_agents.operations.erasure", "Erasing a user's data"),
    PublicModule("helix_agents.conformance.harness", "Conformance kit: the harness of a backend"),
    PublicModule("helix_agents.conformance.run", "Conformance kit: running it"),
    PublicModule("helix_agents.conformance.pytest", "Conformance kit: as tests"),
    PublicModule("helix_agents.crashtest", "The proof that an agent survives crashes"),
    PublicModule("helix_agents.server", "Server"),
    PublicModule("helix_agents.inmemory", "Memory backend"),
    PublicModule("helix_agents.sqlite", "SQLite backend"),
    PublicModule("helix_agents.postgres", "Postgres backend"),
    PublicModule("helix_agents.redis", "Redis backend"),
    PublicModule("helix_agents.cloudflare", "Cloudflare backend and runtime"),
    PublicModule("helix_agents.runtimes.temporal", "Temporal"),
    PublicModule("helix_agents.runtimes.dbos", "DBOS"),
)


def python_pages() -> dict[str, str]:
    """Return a page for each public module, and the index of all names."""
    pages = {f"reference/{module.name}.md": module_page(module) for module in MODULES}
    inside = {f"reference/{INSIDE_WORKER}.md": page_inside_worker(INSIDE_WORKER)}
    return {**pages, **inside, "reference/index.md": index_page()}


def page_inside_worker(module: str) -> str:
    """Return the page of a module as it is inside a Worker, made by another process."""
    command = [sys.executable, "-m", "docsite.worker_page", module]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def public_names(module: ModuleType) -> list[str]:
    """Return what a module offers: `__all__`, else what it defines itself without an underscore."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in own if not name.startswith("_") and callable(getattr(module, name))]


def load(module: ModuleType, name: str) -> Any:
    """Return a public object; None where it exists only inside a Worker."""
    try:
        return getattr(module, name)
    except ImportError:
        return None


def module_page(public: PublicModule) -> str:
    """Return the page of a module."""
    module = import_module(public.name)
    parts = [f"# {public.name}", f"{public.title}.", docstring(module)]
    names = public_names(module)
    parts.append(
        table(["name", ""], [[f"[{code(name)}](#{anchor(name)})", first_line(load(module, name))] for name in names])
    )
    parts += [object_section(name, load(module, name)) for name in names]
    return "\n\n".join(part for part in parts if part) + "\n"


def index_page() -> str:
    """Return the list of public modules."""
    rows = []
    for public in MODULES:
        names = ", ".join(code(name) for name in public_names(import_module(public.name)))
        rows.append([f"[{code(public.name)}]({public.name}.md)", public.title, names])
    return (
        "# Python reference\n\nEvery public name, by the module to import it from.\n\n"
        + table(["module", "", "names"], rows)
        + "\n"
    )


def object_section(name: str, value: Any) -> str:
    """Return the section of one public name."""
    if value is None:
        return f"## {name}\n\nExists inside a Cloudflare Worker only."
    if inspect.isclass(value):
        return class_section(name, value)
    if inspect.isroutine(value):
        return f"## {name}\n\n{signature_block(name, value)}\n\n{docstring(value)}"
    return f"## {name}\n\n{type_alias(value)}"


def type_alias(value: Any) -> str:
    """Return what a name for a type stands for."""
    return f"```text\n{textwrap.shorten(shown_type(value), 2000)}\n```"


def class_section(name: str, value: type) -> str:
    """Return the section of a class: what it is, how it is made, its fields and its methods."""
    parts = [f"## {name}"]
    if not issubclass(value, typing.Protocol) and not issubclass(value, BaseException):
        parts.append(signature_block(name, value))
    parts.append(docstring(value))
    if rows := field_rows(value):
        parts.append(table(["field", "type", "default", ""], rows))
    contracts = contracts_of(value)
    if contracts:
        links = ", ".join(f"[{each.__name__}](helix_agents.md#{anchor(each.__name__)})" for each in contracts)
        parts.append(f"Implements {links}, whose methods are explained there.")
    known = {method for contract in contracts for method, _ in public_methods(contract)}
    for method_name, method in public_methods(value):
        if method_name in known:
            continue
        parts.append(f"### {name}.{method_name}\n\n{signature_block(method_name, method)}\n\n{docstring(method)}")
    return "\n\n".join(part for part in parts if part)


def contracts_of(value: type) -> list[type]:
    """Return the contracts that a class implements."""
    return [each for each in CONTRACTS if issubclass(value, each) and value is not each]


def public_methods(value: type) -> list[tuple[str, Any]]:
    """Return the methods and properties of a class, inherited ones of ours included, in the order they are written."""
    found: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if not base.__module__.startswith("helix_agents"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or not is_method(member) or _is_builtin(value, name) or name in _data_fields(value):
                continue
            previous = found.pop(name, None)
            documented = inspect.getdoc(member.fget if isinstance(member, property) else member)
            found[name] = previous if previous is not None and not documented else member
    return list(found.items())


def _data_fields(value: type) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a dataclass by name; a default that is a function is still a field."""
    return {each.name: each for each in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}


def _is_builtin(value: type, name: str) -> bool:
    """Return whether a method is one of `dict` or `list`, which a class of ours only replaces."""
    return any(name in vars(base) for base in value.__mro__ if base in (dict, list))


def is_method(member: Any) -> bool:
    """Return whether a class member is something to call, or to read."""
    return isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member)


def field_rows(value: type) -> list[list[str]]:
    """Return the fields of a struct, a named tuple or an enumeration."""
    notes = {**documented_fields(value), **field_notes(value)}
    if issubclass(value, msgspec.Struct):
        return [
            [code(each.name), cell(code(shown_type(each.type))), default_of(each), cell(notes.get(each.name, ""))]
            for each in msgspec.structs.fields(value)
        ]
    if data := _data_fields(value):
        return [
            [code(name), cell(code(shown_type(each.type))), _default_of_data(each), cell(notes.get(name, ""))]
            for name, each in data.items()
        ]
    if issubclass(value, enum.Enum):
        return [[code(member.name), "", code(repr(member.value)), ""] for member in value]
    if issubclass(value, tuple) and hasattr(value, "_fields"):
        hints = value.__annotations__
        return [
            [code(name), cell(code(shown_type(hints[name]))), "", cell(notes.get(name, ""))] for name in value._fields
        ]
    return []


def default_of(field: Any) -> str:
    """Return a field's default as code, or nothing if it must be given."""
    if field.default is not msgspec.NODEFAULT:
        return code(repr(field.default))
    if field.default_factory is not msgspec.NODEFAULT:
        return code({list: "[]", dict: "{}"}.get(field.default_factory, f"{field.default_factory.__name__}()"))
    return ""


def _default_of_data(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return code(shown_default(field.default))
    return (
        ""
        if field.default_factory is dataclasses.MISSING
        else code(f"{getattr(field.default_factory, '__name__', '...')}()")
    )


def field_notes(value: type) -> dict[str, str]:
    """Return the strings that follow fields in the source."""
    notes: dict[str, str] = {}
    for base in reversed(value.__mro__):
        if base.__module__.startswith("helix_agents"):
            notes |= _notes_in(base)
    return notes


def documented_fields(value: type) -> dict[str, str]:
    """Return what the page of the data model says about the fields of a class; a row may explain several."""
    page = DATA_MODEL.read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for heading in (f"## {value.__name__}\n", f"| field of `{value.__name__}` |"):
        section = page.partition(heading)[2].partition("\n## ")[0].partition("\n```")[0]
        for row in re.findall(r"^\| (`.+?) \| (.+) \|$", section, re.MULTILINE):
            names = re.findall(r"`(\w+)`", row[0])
            found |= {name: re.sub(r"\]\((?!http)", "](../", row[1]) for name in names}
    return found


def _notes_in(value: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    return {
        field.target.id: " ".join(note.value.value.split())
        for field, note in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }


def signature_block(name: str, value: Any) -> str:
    """Return a call as Python code, one parameter a line if it is long."""
    target: Any = value.fget if isinstance(value, property) else value
    target = target.__func__ if isinstance(target, staticmethod | classmethod) else target
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return ""
    parameters = [each for key, each in signature.parameters.items() if key not in ("self", "cls")]
    returns = signature.return_annotation
    result = "" if returns in (inspect.Signature.empty, None) else f" -> {shown_type(returns)}"
    if isinstance(value, property):
        return f"```python-signature\n{name}{result.replace(' -> ', ': ')}\n```".replace("python-signature", "text")
    word = "async def " if inspect.iscoroutinefunction(target) else "" if inspect.isclass(value) else "def "
    text = f"{word}{name}({', '.join(shown_parameters(parameters))}){'' if inspect.isclass(value) else result}"
    if len(text) > 100:
        lines = "".join(f"    {each},\n" for each in shown_parameters(parameters))
        text = f"{word}{name}(\n{lines}){'' if inspect.isclass(value) else result}"
    return f"```text\n{text}\n```"


def shown_parameters(parameters: list[inspect.Parameter]) -> list[str]:
    """Return parameters as they are written, with the star before those that need their name."""
    shown: list[str] = []
    starred = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or each.kind is each.VAR_POSITIONAL
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        kind = "" if each.annotation in NO_DEFAULT else f": {shown_type(each.annotation)}"
        default = (
            ""
            if each.default in NO_DEFAULT
            else f" = {shown_default(each.default)}"
            if kind
            else f"={shown_default(each.default)}"
        )
        shown.append(f"{stars}{each.name}{kind}{default}")
    return shown


def shown_default(value: Any) -> str:
    """Return a default as a reader would write it; of a set, always in the same order."""
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(repr, value))) + "}"
    text = getattr(value, "__name__", None) or repr(value)
    return "..." if " at 0x" in text or "<lambda>" in text else text


def shown_type(value: Any) -> str:
    """Return a type without the modules it comes from."""
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    text = re.sub(r"ForwardRef\('([^']+)'[^)]*\)", r"\1", text)
    return re.sub(r"\b(?:[a-z_][a-z_0-9]*\.)+(?=[A-Za-z_])", "", text).strip("'").replace("NoneType", "None")


def docstring(value: Any) -> str:
    """Return the docstring as Markdown: code that is indented becomes a block."""
    text = inspect.getdoc(value.fget if isinstance(value, property) else value) or ""
    if inspect.isclass(value) and text == inspect.getdoc(value.__mro__[1]):
        text = text if value.__mro__[1].__module__.startswith("helix_agents") else ""
    blocks = []
    for block in text.split("\n\n"):
        indented = block.startswith("    ") and all(line.startswith("    ") or not line for line in block.splitlines())
        blocks.append(f"```text\n{textwrap.dedent(block)}\n```" if indented else block)
    return "\n\n".join(blocks).replace("```\n\n```text\n", "\n")


def first_line(value: Any) -> str:
    """Return the first sentence of a docstring, for a table."""
    if value is None or not (inspect.isclass(value) or inspect.isroutine(value)):
        return ""
    return cell(docstring(value).partition("\n\n")[0].replace("\n", " "))
