"""Toolset: tools that are known only at run time, such as those of a server in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from .tool import Tool


@runtime_checkable
class Toolset(Protocol):
    """A source of tools that an agent lists among its `tools`.

    The executor calls `refresh` before each step, so the tools a model is offered never change within a step.
    """

    async def refresh(self) -> None:
        """Bring `offered` up to date. Raises `ToolsUnavailable` if there is nothing to offer yet."""
        ...

    @property
    def offered(self) -> Mapping[str, Tool]:
        """The tools to offer to the model, by name, in a stable order."""
        ...

    @property
    def known(self) -> Mapping[str, Tool]:
        """Every tool that was ever offered: a call that the model made before a change still finds its tool."""
        ...
