"""The executors of commands: one that only controls runs, and those named by a user's module."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from ..backends.registry import Stores
from ..errors import InvalidArgument, ModelError
from ..executor import AgentExecutor, Webhook
from ..llm.contract import ModelEvent, ModelRequest

WEBHOOK_VARIABLE = "HELIX_WEBHOOK_URL"
WEBHOOK_SECRET_VARIABLE = "HELIX_WEBHOOK_SECRET"
HOW_TO_NAME = "module:name of an AgentExecutor, or of a function of stores that makes one"


class _NoModel:
    """A placeholder model for commands that start no run."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        raise ModelError("The command line has no default model: name an executor.")
        yield  # an async generator, as every model


def steering(stores: Stores) -> AgentExecutor:
    """Return an executor that can interrupt, answer and delete, but not start runs."""
    return AgentExecutor(stores.state, stores.streams, _NoModel(), usage_store=stores.usage, blob_store=stores.blobs)


@asynccontextmanager
async def executor_named(name: str, stores: Stores) -> AsyncIterator[AgentExecutor]:
    """Return the executor that `module:name` names: the object itself, or the result of calling it with these
    stores."""
    found = find(name)
    made = found if isinstance(found, AgentExecutor) or not callable(found) else found(stores)
    if not isinstance(made, AgentExecutor):
        instead = " or ".join(executors_beside(name)) or HOW_TO_NAME
        raise InvalidArgument(f"{name!r} is not an executor but {type(made).__name__}: name {instead}.")
    if url := os.environ.get(WEBHOOK_VARIABLE):
        made.add_webhooks(Webhook(url, os.environ.get(WEBHOOK_SECRET_VARIABLE, "")))
    async with made:
        yield made


def look_in_current_folder() -> None:
    """Let imports find modules in the current folder, as `python -m` does."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def find(name: str) -> object:
    """Return the object that `module:name` names; the current folder is searched first."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidArgument(f"{name!r} does not name an executor: write module:name, for example my_app:executor.")
    look_in_current_folder()
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"Cannot find {name!r}: {error}.") from error


def executors_beside(name: str) -> list[str]:
    """Return `module:name` of each executor in the module of an object, and of each function declared to return one."""
    module = name.partition(":")[0]
    found = vars(import_module(module)).items()
    return [f"{module}:{attribute}" for attribute, value in found if _is_executor(value, module)]


def _is_executor(value: object, module: str) -> bool:
    if not inspect.isfunction(value) or value.__module__ != module:
        return isinstance(value, AgentExecutor)
    return value.__annotations__.get("return") in (AgentExecutor, AgentExecutor.__name__)
