"""Which package may import which, and other rules about the source tree.

The rules are in `layers.py`. Each is applied to our own tree and to a small tree that breaks it, so that a
rule that no longer finds anything fails here.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import helix_agents
from tests.architecture import layers
from tests.architecture.layers import Source

Check = Callable[[dict[str, Source]], list[str]]
SOURCE_ROOT = Path(__file__).parents[2] / "src"
CHECKS: list[Check] = [
    layers.layer_breaches,
    layers.library_breaches,
    layers.hidden_import_breaches,
    layers.cycle_breaches,
    layers.inside_breaches,
    layers.unguarded_breaches,
    layers.ownership_breaches,
    layers.file_breaches,
    layers.retry_breaches,
    layers.function_breaches,
    layers.polling_breaches,
    layers.row_breaches,
    layers.failure_breaches,
]


@pytest.fixture(scope="module")
def sources() -> dict[str, Source]:
    return layers.read_sources(SOURCE_ROOT)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_tree_keeps_the_rule(check: Check, sources: dict[str, Source]) -> None:
    assert "helix_agents.errors" in sources
    breaches = check(sources)
    assert not breaches, "\n" + "\n".join(breaches)


# By check: the words it must report, and files that break the rule (and no other rule).
BROKEN: dict[Check, list[tuple[str, dict[str, str]]]] = {
    layers.layer_breaches: [
        ("core may not import stores", {"codec.py": "from .stores import base", "stores/state/base.py": ""}),
        ("state may not import stores", {"state/draft.py": "import helix_agents.stores.state.base"}),
        ("backends may not import executor", {"backends/redis/state.py": "from ...executor.loop import run"}),
        ("backends may not import server", {"backends/sqlite.py": "from ..server import app"}),
        ("backends may not import cli", {"backends/sqlite.py": "from .. import cli", "cli.py": ""}),
        ("conformance may not import backends", {"conformance/kit.py": "from helix_agents.backends import inmemory"}),
        ("executor may not import backends", {"executor/loop.py": "from ..backends.inmemory import X"}),
        ("executor may not import server", {"executor/loop.py": "from ..server.sse import X"}),
        ("server may not import cli", {"server/app.py": "from ..cli import main"}),
        ("server may not import front door", {"server/app.py": "from helix_agents import Agent"}),
        ("executor may not import front door", {"executor/loop.py": "from .. import Agent"}),
        ("state may not import executor", {"state/a.py": "if TYPE_CHECKING:\n    from ..executor import loop"}),
        ("'helpers' is not in the table", {"helpers.py": "X = 1"}),
    ],
    layers.library_breaches: [
        ("redis belongs into backends.redis", {"stores/state/base.py": "import redis.asyncio"}),
        ("redis belongs into backends.redis", {"backends/redis_extra.py": "import redis"}),
        ("sqlite3 belongs into backends.sqlite", {"backends/sql_shared/state/planned_commit.py": "import sqlite3"}),
        ("requests is not one of our dependencies", {"llm/contract.py": "from requests import get"}),
    ],
    layers.hidden_import_breaches: [
        ("helix_agents.server inside a function", {"cli.py": "def f():\n    from . import server", "server.py": ""}),
        (
            "json inside a function",
            {"cli.py": "class A:\n    async def f(self):\n        import json"},
        ),
    ],
    layers.inside_breaches: [
        (
            "not from helix_agents.executor.session.claim",
            {"server/app.py": "from ..executor.session.claim import X", "executor/session/claim.py": ""},
        ),
    ],
    layers.unguarded_breaches: [
        ("StateStore is out of the loop's reach", {"executor/run/loop.py": "from ...stores import StateStore"}),
        ("Services is out of the loop's reach", {"executor/step/work.py": "from ..services import Services"}),
        ("a.streams is out of the loop's reach", {"executor/step/work.py": "def f(a):\n    a.streams.reset('s')"}),
        ("a.owned._store is out of the loop's reach", {"executor/run/loop.py": "def f(a):\n    a.owned._store"}),
    ],
    layers.ownership_breaches: [
        ("decides who owns a session", {"server/app.py": "def f(run, now):\n    return (run.lease_until or 0) > now"}),
        ("decides who owns a session", {"executor/run/loop.py": "def f(run):\n    return run.status != 'running'"}),
        ("decides who owns a session", {"cli/run.py": "def f(run):\n    return run.status in ('running', 'x')"}),
    ],
    layers.cycle_breaches: [
        ("stores.a -> helix_agents.stores.b", {"stores/a.py": "from . import b", "stores/b.py": "from .a import X"}),
        (
            "stores.a -> helix_agents.streams.b",
            {
                "stores/a.py": "import helix_agents.streams.b",
                "streams/b.py": "from ..state import c",
                "state/c.py": "from ..stores.a import X",
            },
        ),
    ],
    layers.retry_breaches: [
        ("use or add a Retry in retry.py, not MAX_ATTEMPTS", {"stores/state/base.py": "MAX_ATTEMPTS = 5"}),
        ("not POLL_SECONDS", {"server/app.py": "POLL_SECONDS: float = 0.5"}),
        ("not RETRY_DELAYS", {"streams/writer.py": "RETRY_DELAYS = (0.1, 0.2)"}),
    ],
    layers.file_breaches: [
        ("lines, at most 450", {"cli.py": "X = 1\n" * 451}),
        ("cli: no docstring", {"cli.py": "!X = 1"}),
    ],
    layers.polling_breaches: [
        (
            "at most 2 ms never ends in workerd",
            {"cli.py": f"SOON = 0.001\nasync def run():\n    while not done():\n        await sleep({seconds})"},
        )
        for seconds in ("0", "0.002", "SOON")
    ],
    layers.row_breaches: [
        ("make it a NamedTuple instead of [3]", {"backends/sqlite/rows.py": "def name(row):\n    return row[3]"}),
    ],
    layers.failure_breaches: [
        ("use a constant of failures.py", {"cli.py": "FAILED = session.failure_reason == 'aborted'"}),
        ("use a constant of failures.py", {"cli.py": "ENDING = Ending(failure_reason='aborted')"}),
    ],
    layers.function_breaches: [
        ("run has 61 lines, at most 60", {"cli.py": "async def run():\n" + "    X = 1\n" * 60}),
    ],
}


def write_tree(root: Path, files: dict[str, str]) -> dict[str, Source]:
    """Return a package of the given files, each with a docstring unless it begins with an exclamation mark."""
    for name, body in {"__init__.py": "", **files}.items():
        path = root / layers.PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body[1:] if body.startswith("!") else f'"""Say it."""\n{body}\n')
    return layers.read_sources(root)


@pytest.mark.parametrize(
    ("check", "words", "files"),
    [pytest.param(check, *row, id=row[0]) for check, rows in BROKEN.items() for row in rows],
)
def test_a_breach_is_noticed(tmp_path: Path, check: Check, words: str, files: dict[str, str]) -> None:
    assert words in "\n".join(check(write_tree(tmp_path, files)))


def test_a_tree_in_order_passes_every_check(tmp_path: Path) -> None:
    sources = write_tree(
        tmp_path,
        {
            "__init__.py": "from .executor.loop import run",
            "errors.py": "import json",
            "state/draft.py": "from ..errors import X",
            "stores/__init__.py": "from .contract import StateStore",
            "stores/state/contract.py": "from ..state import draft\nfrom ..errors import X\nimport msgspec",
            "stores/state/base.py": "from .contract import StateStore",
            "backends/redis/__init__.py": "from .state_store import X",
            "backends/redis/state_store.py": "import redis.asyncio\nfrom ...stores import base",
            "executor/loop.py": "from ..stores.contract import StateStore\ndef run():\n    import opentelemetry.trace",
            "server/app.py": "from ..executor import X\nfrom starlette import X",
            "cli.py": "from .server.app import create\nfrom .backends.redis import X",
        },
    )
    assert [breach for check in CHECKS for breach in check(sources)] == []


def undocumented(names: list[str], owner: object) -> list[str]:
    """Return public classes and functions without their own docstring (inherited and generated ones do not count)."""
    missing = []
    for name in names:
        value = getattr(owner, name)
        if not inspect.isclass(value) and not inspect.isroutine(value):
            continue
        text = (value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
        if not text.strip() or text.startswith(f"{name}("):
            missing.append(name)
    return missing


def test_every_public_name_is_documented() -> None:
    names = list(getattr(helix_agents, "__all__", []))
    assert undocumented(names, helix_agents) == []


def test_a_public_name_without_docstring_is_noticed() -> None:
    class Silent(Exception):
        pass

    def quiet() -> None:
        pass

    owner = types.SimpleNamespace(Silent=Silent, quiet=quiet, spoken=test_every_public_name_is_documented, VALUE=1)
    assert undocumented(["Silent", "quiet", "VALUE"], owner) == ["Silent", "quiet"]
