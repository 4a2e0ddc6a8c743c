"""The executors that commands work with: one that only steers, and those that a user's module names."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from ..backends.registry import Stores
from ..errors import InvalidArgument, ModelError
from ..executor import AgentExecutor
from ..llm.contract import ModelEvent, ModelRequest

HOW_TO_NAME = "module:name of an AgentExecutor, or of a function of stores that makes one"


class _NoModel:
    """In place of a model where no run is started."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        raise ModelError("The command line has no model of its own: name an executor.")
        yield  # an async generator, as every model


def steering(stores: Stores) -> AgentExecutor:
    """An executor that can interrupt, answer and delete, but start nothing."""
    return AgentExecutor(stores.state, stores.streams, _NoModel(), usage_store=stores.usage, blob_store=stores.blobs)


@asynccontextmanager
async def executor_named(name: str, stores: Stores) -> AsyncIterator[AgentExecutor]:
    """The executor that `module:name` names: as it is, or made by a function of these stores."""
    found = find(name)
    made = found if isinstance(found, AgentExecutor) or not callable(found) else found(stores)
    if not isinstance(made, AgentExecutor):
        raise InvalidArgument(f"{name!r} is not an executor but {type(made).__name__}: name {HOW_TO_NAME}.")
    async with made:
        yield made


def look_in_current_folder() -> None:
    """Let imports find modules in the current folder, as `python -m` does."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def find(name: str) -> object:
    """What `module:name` names, looked for from the present folder on."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidArgument(f"{name!r} does not name an executor: write module:name, for example my_app:executor.")
    look_in_current_folder()
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"Cannot find {name!r}: {error}.") from error
