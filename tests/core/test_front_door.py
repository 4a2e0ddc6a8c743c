"""The public names are exactly these: adding or removing one changes this list."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from inspect import ismodule

import pytest

import helix_agents
from helix_agents import errors

# Libraries that only an extra installs.
EXTRAS = ["anthropic", "asyncpg", "google.genai", "mcp", "openai", "opentelemetry", "redis", "starlette"]

NAMES = [
    "Agent",
    "AgentExecutor",
    "AgentResult",
    "AlreadyRunning",
    "AnthropicLLM",
    "BlobStore",
    "Checkpoint",
    "CheckpointMeta",
    "DraftClosed",
    "FallbackLLM",
    "File",
    "GeminiLLM",
    "HelixError",
    "Image",
    "InvalidArgument",
    "MemoryStore",
    "ModelRetry",
    "NotResumable",
    "NotSerializable",
    "OpenAILLM",
    "OpenAIResponsesLLM",
    "Page",
    "PatchError",
    "PendingClientToolCall",
    "RunHandle",
    "RunLost",
    "RunRecord",
    "SchemaTooNew",
    "ScriptedLLM",
    "SessionExists",
    "SessionNotFound",
    "SessionState",
    "StateStore",
    "StateTracker",
    "StepWrites",
    "StoreUnavailable",
    "Stores",
    "StreamCursorAhead",
    "StreamFailed",
    "StreamManager",
    "StreamNotActive",
    "StreamTruncated",
    "SubSessionRef",
    "SuspendedChildWait",
    "ToolContext",
    "UsageLimits",
    "UsageStore",
    "VersionConflict",
    "apply_patch",
    "apply_step_writes",
    "create_app",
    "expired_session_cleanup",
    "merge_step_writes",
    "open_model",
    "open_stores",
    "step_writes_to_rfc6902",
    "tool",
]


def test_the_public_names_are_exactly_these() -> None:
    assert helix_agents.__all__ == NAMES
    assert len(NAMES) <= 60, "a newcomer has to read them all"


def test_every_public_name_can_be_imported() -> None:
    for name in helix_agents.__all__:
        assert getattr(helix_agents, name) is not None


def test_public_names_are_sorted_and_unique() -> None:
    assert helix_agents.__all__ == sorted(set(helix_agents.__all__))


def test_the_root_holds_its_public_names_and_modules_only() -> None:
    held = {name for name, value in vars(helix_agents).items() if not name.startswith("_") and not ismodule(value)}
    assert held - {"annotations"} <= set(helix_agents.__all__)
    assert dir(helix_agents) == helix_agents.__all__


def test_every_error_is_in_the_tree() -> None:
    own = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert all(issubclass(each, errors.HelixError) for each in own)
    assert all(each.__name__ in (errors.__doc__ or "") for each in own), "the docstring draws the whole tree"


@pytest.mark.parametrize("module", ["sqlite", "postgres", "redis", "inmemory"])
def test_the_stores_of_a_backend_have_a_module(module: str) -> None:
    found = import_module(f"helix_agents.{module}")
    kinds = ("BlobStore", "MemoryStore", "StateStore", "StreamManager", "UsageStore")
    assert [name for name in found.__all__ if not name.endswith(kinds)] == []
    assert len(found.__all__) == len(kinds)
    assert all(isinstance(getattr(found, name), type) for name in found.__all__)


def test_the_module_of_cloudflare_lists_what_it_can_load() -> None:
    module = import_module("helix_agents.cloudflare")
    assert module.__all__ == sorted(module._HOMES)


def test_importing_the_package_imports_no_extra() -> None:
    loaded = "print(*sorted(name for name in sys.modules if name in extras))"
    code = f"import sys, helix_agents; extras = {EXTRAS!r}; {loaded}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        helix_agents.nonsense  # noqa: B018


AS_IN_A_WORKER = """
import asyncio, os, random, socket, sys, tempfile, threading  # what Python's own modules ask for is not our concern
asked = []
sys.modules["sqlite3"] = sys.modules["_sqlite3"] = None  # some Workers have none
random.Random.seed = lambda self, *a, **k: asked.append("a random seed")
os.urandom = lambda count: asked.append("entropy") or bytes(count)
threading.Thread.start = lambda self: asked.append("a thread")
socket.socket.__init__ = lambda self, *a, **k: asked.append("a socket")
import helix_agents
for module in sys.argv[1:]:
    __import__("helix_agents." + module)
assert asked == [], asked
"""


def test_importing_asks_for_no_entropy_thread_socket_or_sqlite() -> None:
    # A Worker is imported once, for a snapshot that all copies start from: a random value from import is shared.
    modules = [
        "backends.sql_shared.state.store",
        "backends.sql_shared.streams.manager",
        "backends.sql_shared.usage.store",
        "backends.sql_shared.memory.store",
        "executor",
        "conformance",
    ]
    done = subprocess.run([sys.executable, "-c", AS_IN_A_WORKER, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
