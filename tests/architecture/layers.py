"""The rules about imports and files, as functions of a source tree.

Nothing here imports the package: everything is read from the syntax trees, so a tree that cannot even be imported
can be checked, and so can a small broken tree in a test. Each check returns sentences, one for each breach.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "helix_agents"
MAX_LINES = 450
MAX_FUNCTION_LINES = 60
MAX_ROW_INDEX = 2
LONGEST_MICROTASK_SECONDS = 0.002

CORE_FILES = frozenset(
    {
        "content",
        "errors",
        "failures",
        "types",
        "messages",
        "chunks",
        "lifecycle",
        "codec",
        "clock",
        "ids",
        "values",
        "safe_text",
        "retry",
    }
)
CONTRACTS = frozenset({"stores", "streams"})
GROUND = CONTRACTS | {"state", "core"}
AGENT_SIDE = frozenset({"agent", "tools", "schema", "llm", "limits", "history"})
BELOW_SERVER = GROUND | AGENT_SIDE | {"executor"}

# Package -> the packages it may import, besides itself. A package that is not listed here may not exist.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "state": frozenset({"core"}),
    "stores": GROUND,
    "streams": GROUND,
    "backends": GROUND,
    # The kit also has checks of the executor; the executor never imports the kit.
    "conformance": BELOW_SERVER,
    "llm": frozenset({"core"}),
    "schema": frozenset({"core"}),
    "tools": frozenset({"core", "state", "schema", "llm", "stores"}),
    # Tools of MCP servers, for agents; no lower layer imports it.
    "mcp": frozenset({"core", "tools"}),
    "limits": frozenset({"core"}),
    "history": frozenset({"core", "llm"}),
    "agent": frozenset({"core", "state", "tools", "schema", "llm", "limits", "history"}),
    "executor": GROUND | AGENT_SIDE,
    "operations": BELOW_SERVER,
    # Built on the hooks of the executor, which does not import it.
    "telemetry": BELOW_SERVER,
    "server": BELOW_SERVER | {"telemetry"},
    # Combines executor, stores and server in one place, such as a Durable Object.
    "runtimes": BELOW_SERVER | {"server", "backends", "operations"},
    "demo": BELOW_SERVER | {"backends"},
    # Kills users' own agents with the faults of the kit, on memory stores or by URL.
    "crashtest": BELOW_SERVER | {"backends", "conformance"},
    "cli": BELOW_SERVER | {"operations", "demo", "server", "backends", "conformance", "crashtest"},
    "__main__": frozenset({"cli"}),
    # Packages from which users import the stores of one backend each.
    "sqlite": frozenset({"backends"}),
    "postgres": frozenset({"backends"}),
    "redis": frozenset({"backends"}),
    "inmemory": frozenset({"backends"}),
    "cloudflare": frozenset({"backends", "runtimes"}),
    # The root package re-exports from anywhere; no module inside imports it.
    "front door": BELOW_SERVER | {"server", "operations", "backends"},
}

ANYWHERE = ""
# Library -> the modules (or folders of modules) that may import it. No other module may import it.
LIBRARY_HOMES: dict[str, tuple[str, ...]] = {
    "msgspec": (ANYWHERE,),
    # For type checkers only, which include it: defaults of type variables.
    "typing_extensions": ("tools", "agent", "executor"),
    "asyncpg": ("backends.postgres",),
    # What SQLite, D1 and Durable Objects share must run where there is no sqlite3.
    "sqlite3": ("backends.sqlite",),
    "redis": ("backends.redis",),
    "hiredis": ("backends.redis",),
    "starlette": ("server", "runtimes.cloudflare"),
    "uvicorn": ("server", "cli"),
    "websockets": ("server", "backends.cloudflare"),
    "openai": ("llm",),
    "anthropic": ("llm.anthropic",),
    "google": ("llm.gemini",),
    "httpx": ("llm", "backends.cloudflare"),
    "aiohttp": ("backends.cloudflare",),
    "js": ("backends.cloudflare", "llm.fetch"),
    "pyodide": ("backends.cloudflare", "runtimes.cloudflare", "llm.fetch"),
    "workers": ("runtimes.cloudflare", "backends.cloudflare"),
    "temporalio": ("runtimes.temporal",),
    "dbos": ("runtimes.dbos",),
    "mcp": ("mcp",),
    "cronsim": ("executor.later.timetable",),
    "anyio": ("mcp",),
    "httpx2": ("mcp",),
    "pytest": ("conformance",),
    "opentelemetry": (ANYWHERE,),
    "pydantic": (ANYWHERE,),
}
# Libraries that a plain installation lacks: only these may be imported inside a function.
OPTIONAL_LIBRARIES = frozenset(LIBRARY_HOMES) - {"msgspec", "sqlite3"}


@dataclass(frozen=True)
class Import:
    """One import statement's target, as seen from one module."""

    module: str
    line: int
    target: str
    inside_function: bool

    @property
    def place(self) -> str:
        return f"{self.module}, line {self.line}"


@dataclass(frozen=True)
class Source:
    """One file of the tree, parsed."""

    module: str
    path: Path
    tree: ast.Module
    line_count: int
    import_nodes: tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]
    """Each import statement, and whether it is inside a function."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def read_sources(root: Path) -> dict[str, Source]:
    """Return every module below `root` (the folder that holds the package), by dotted name."""
    sources = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        nodes = tuple(_walk(tree, inside_function=False))
        sources[module] = Source(module, path, tree, len(text.splitlines()), nodes)
    return sources


def package_of(module: str) -> str:
    """Return the package in the table that one of our modules belongs to."""
    parts = module.split(".")
    if len(parts) == 1:
        return "front door"
    return "core" if len(parts) == 2 and parts[1] in CORE_FILES else parts[1]


def imports_of(source: Source, known: dict[str, Source]) -> list[Import]:
    found = []
    for node, inside_function in source.import_nodes:
        for target in _targets(node, source, known):
            found.append(Import(source.module, node.lineno, target, inside_function))
    return found


def _walk(node: ast.AST, *, inside_function: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside_function
        deeper = inside_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _walk(child, inside_function=deeper)


def _targets(node: ast.Import | ast.ImportFrom, source: Source, known: dict[str, Source]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        # One dot is the package that contains the module; a package's own __init__ is already inside it.
        anchor = source.module.split(".")[: None if source.is_package else -1]
        anchor = anchor[: len(anchor) - (node.level - 1)]
        base = ".".join([*anchor, *([base] if base else [])])
    # `from package import name` means the submodule where there is one, else the package itself.
    return sorted({name if (name := f"{base}.{alias.name}") in known else base for alias in node.names})


def all_imports(sources: dict[str, Source]) -> list[Import]:
    return [found for source in sources.values() for found in imports_of(source, sources)]


def is_ours(target: str) -> bool:
    return target.split(".")[0] == PACKAGE


def layer_breaches(sources: dict[str, Source]) -> list[str]:
    """Return modules of a package that is not in the table, and imports that the table does not allow."""
    breaches = [
        f"{module}: package {package_of(module)!r} is not in the table MAY_IMPORT; decide there who may import whom."
        for module in sources
        if package_of(module) not in MAY_IMPORT
    ]
    for found in all_imports(sources):
        if not is_ours(found.target):
            continue
        package, wanted = package_of(found.module), package_of(found.target)
        if package != wanted and wanted not in MAY_IMPORT.get(package, frozenset()):
            breaches.append(f"{found.place}: {package} may not import {wanted} ({found.target}).")
    return breaches


def library_breaches(sources: dict[str, Source]) -> list[str]:
    """Return imports of libraries outside of their modules, and of unknown libraries."""
    breaches = []
    for found in all_imports(sources):
        library = found.target.split(".")[0]
        homes = LIBRARY_HOMES.get(library)
        if library == PACKAGE or (homes is None and library in sys.stdlib_module_names):
            continue
        inner = found.module.removeprefix(PACKAGE).lstrip(".")
        if homes is None:
            breaches.append(f"{found.place}: {library} is not one of our dependencies.")
        elif not any(home == ANYWHERE or inner == home or inner.startswith(f"{home}.") for home in homes):
            breaches.append(f"{found.place}: {library} belongs into {' or '.join(homes)} only.")
    return breaches


def hidden_import_breaches(sources: dict[str, Source]) -> list[str]:
    """Return imports inside functions of anything but an optional library."""
    return [
        f"{found.place}: import of {found.target} inside a function; only optional libraries may hide there."
        for found in all_imports(sources)
        if found.inside_function and found.target.split(".")[0] not in OPTIONAL_LIBRARIES
    ]


def inside_breaches(sources: dict[str, Source]) -> list[str]:
    """Return imports of the executor's internal modules by another package, which may use its two public modules only.

    The kit may import its internals, and the root package re-exports from anywhere.
    """
    inside, doors = f"{PACKAGE}.executor", {f"{PACKAGE}.executor", f"{PACKAGE}.executor.workers"}
    exempt = (inside, f"{PACKAGE}.conformance")
    return [
        f"{found.place}: import from {' or '.join(sorted(doors))}, not from {found.target}."
        for found in all_imports(sources)
        if found.target.startswith(f"{inside}.")
        and found.target in sources
        and found.target not in doors
        and found.module != PACKAGE
        and not any(found.module == package or found.module.startswith(f"{package}.") for package in exempt)
    ]


LOOP = (f"{PACKAGE}.executor.run.", f"{PACKAGE}.executor.step.")
PLAIN_STORES = frozenset({"StateStore", "StreamManager", "Services"})


def unguarded_breaches(sources: dict[str, Source]) -> list[str]:
    """Return uses of a plain store in the agent loop: its writes have neither the owner's epoch nor its fence.

    The loop has an `OwnedSession` and a `FencedStream`; their private stores are not for others either.
    """
    breaches = []
    for source in sources.values():
        if not source.module.startswith(LOOP):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom):
                names = sorted(PLAIN_STORES & {alias.name for alias in node.names})
            elif isinstance(node, ast.Attribute) and node.attr.strip("_") in ("store", "streams"):
                is_own = node.attr.startswith("_") and ast.unparse(node.value) == "self"
                names = [] if is_own else [ast.unparse(node)]
            else:
                continue
            breaches += [
                f"{source.module}, line {node.lineno}: {name} is out of the loop's reach; "
                "write through the OwnedSession or the FencedStream."
                for name in names
            ]
    return breaches


def cycle_breaches(sources: dict[str, Source]) -> list[str]:
    """Return modules that import each other, directly or indirectly (imports for type checking also count)."""
    edges: dict[str, set[str]] = {module: set() for module in sources}
    for found in all_imports(sources):
        if found.target in sources and found.target != found.module:
            edges[found.module].add(found.target)
    breaches, done = [], set[str]()

    def visit(module: str, trail: list[str]) -> None:
        if module in trail:
            breaches.append("Import cycle: " + " -> ".join([*trail[trail.index(module) :], module]))
        elif module not in done:
            for target in sorted(edges[module]):
                visit(target, [*trail, module])
            done.add(module)

    for module in sorted(edges):
        visit(module, [])
    return breaches


def function_breaches(sources: dict[str, Source]) -> list[str]:
    """Return functions that are too long."""
    return [
        f"{source.module}, line {node.lineno}: {node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}."
        for source in sources.values()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


# Where a short sleep in a loop is fine: what never runs in a Worker, and a loop that yields to others between pieces
# of work and waits for nothing.
ASKS_THE_TABLE = tuple(f"{PACKAGE}.{package}" for package in ("executor", "server", "runtimes", "operations", "cli"))
DECIDES = (f"{PACKAGE}.executor.session.standing", f"{PACKAGE}.executor.session.lease")
"""The table itself, and the owner that renews its own lease."""


def ownership_breaches(sources: dict[str, Source]) -> list[str]:
    """Return comparisons of leases, or of a run's status with "running": one table decides who owns a session."""
    return [
        f"{source.module}, line {node.lineno}: {ast.unparse(node)} decides who owns a session; ask session/standing.py."
        for source in sources.values()
        if source.module.startswith(ASKS_THE_TABLE) and source.module not in DECIDES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Compare) and _compares_ownership(node)
    ]


def _compares_ownership(node: ast.Compare) -> bool:
    parts = list(ast.walk(node))
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    is_status = any(isinstance(part, ast.Constant) and part.value == "running" for part in parts)
    return "lease_until" in attributes or (is_status and "status" in attributes)


MAY_SLEEP_BRIEFLY = tuple(
    f"{PACKAGE}.{name}" for name in ("backends.postgres", "backends.redis", "backends.sqlite", "streams.tail")
)


def polling_breaches(sources: dict[str, Source]) -> list[str]:
    """Return `while` loops that sleep for at most 2 ms: in workerd such a sleep is a microtask.

    So nothing that the loop waits for can happen: no timer, no request, no other object. The loop spins forever.
    """
    return [
        f"{source.module}, line {call.lineno}: a loop that sleeps for at most 2 ms never ends in workerd; "
        "await an event, or sleep longer."
        for source in sources.values()
        if not source.module.startswith(MAY_SLEEP_BRIEFLY)
        for loop in ast.walk(source.tree)
        if isinstance(loop, ast.While)
        for call in ast.walk(loop)
        if isinstance(call, ast.Call) and _sleeps_briefly(call, source)
    ]


def _sleeps_briefly(call: ast.Call, source: Source) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name != "sleep" or not call.args:
        return False
    given = call.args[0]
    for node in source.tree.body if isinstance(given, ast.Name) else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(given):
            given = node.value
    seconds = given.value if isinstance(given, ast.Constant) else None
    return isinstance(seconds, int | float) and seconds <= LONGEST_MICROTASK_SECONDS


RETRY_WORDS = re.compile("(ATTEMPT|TRIES|RETRY|RETRIES|PATIENCE|BACKOFF|RECONNECT|AGAIN|POLL)")
# Not limits on retries: an HTTP header, the largest value that a user may request.
NO_RETRIES = frozenset({f"{PACKAGE}.server.problems.RETRY_AFTER_SECONDS", f"{PACKAGE}.tools.tool.MAX_RETRIES"})
OWN_PACE = (f"{PACKAGE}.retry", f"{PACKAGE}.demo.", f"{PACKAGE}.conformance.")


def retry_breaches(sources: dict[str, Source]) -> list[str]:
    """Return numbers that limit or pace retries, outside of the module that holds them all."""
    breaches = []
    for source in sources.values():
        if source.module.startswith(OWN_PACE):
            continue
        for node in source.tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            numbers = [v for v in values if isinstance(v, ast.Constant) and isinstance(v.value, int | float)]
            if RETRY_WORDS.search(name) and numbers and f"{source.module}.{name}" not in NO_RETRIES:
                breaches.append(f"{source.module}, line {node.lineno}: use or add a Retry in retry.py, not {name}.")
    return breaches


def row_breaches(sources: dict[str, Source]) -> list[str]:
    """Return values of backend rows that are accessed by index: from the fourth on they need names."""
    return [
        f"{source.module}, line {node.lineno}: unpack the row or make it a NamedTuple instead of [{node.slice.value}]."
        for source in sources.values()
        if source.module.startswith(f"{PACKAGE}.backends.")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and type(node.slice.value) is int
        if node.slice.value > MAX_ROW_INDEX
    ]


def file_breaches(sources: dict[str, Source]) -> list[str]:
    """Return files that are too long or have no module docstring."""
    breaches = [
        f"{source.module}: {source.line_count} lines, at most {MAX_LINES}; look for the second idea in it."
        for source in sources.values()
        if source.line_count > MAX_LINES
    ]
    breaches += [
        f"{source.module}: no docstring; say what this module does and what it must not know."
        for source in sources.values()
        if source.tree.body and ast.get_docstring(source.tree) is None
    ]
    return breaches


def failure_breaches(sources: dict[str, Source]) -> list[str]:
    """Return failure reasons that are spelled out: `failures.py` has a constant for each."""
    return [
        f"{source.module}, line {node.lineno}: use a constant of failures.py, not {ast.unparse(node)}."
        for source in sources.values()
        if not source.module.startswith(f"{PACKAGE}.conformance")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.keyword | ast.Compare)
        if re.search(r"failure_reason ?(=|==|!=|in|is) ?[('\"]", ast.unparse(node))
    ]
