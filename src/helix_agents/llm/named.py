"""Models by name: `anthropic:NAME`, `openai:NAME`, `openai-chat:NAME?base_url=...`, `google:NAME`.

A provider's adapter is imported when its model is first used, because the official clients are optional and take a
second to import. Other packages add providers by the entry point group `helix_agents.models`: an entry is named after
its provider and points to a function `(model, **options) -> LLM`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

from ..errors import HelixError, InvalidArgument, ModelError
from .contract import LLM, ModelEvent, ModelRequest

ENTRY_POINTS = "helix_agents.models"

_ADAPTERS = {
    "anthropic": "anthropic:AnthropicLLM",
    "openai": "responses:OpenAIResponsesLLM",
    "openai-chat": "openai:OpenAILLM",
    "google": "gemini:GeminiLLM",
}


class ModelName(NamedTuple):
    """A parsed name. `options` are the adapter's keyword arguments."""

    provider: str
    model: str
    options: dict[str, Any]


def open_model(name: str, **options: Any) -> LLM:
    """Return the model of that name. `?option=value` in the name and `options` go to its adapter.

    Values in a name are JSON if they parse as JSON, else text. Keys come from the provider's usual environment variable
    (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY`) or from `api_key=`. Raises `InvalidArgument` for a name or
    an option that is not valid, and `ImportError` if an extra is missing.
    """
    parsed = parse_model(name)
    adapter = _adapter(parsed.provider)
    try:
        return adapter(parsed.model, **{**parsed.options, **options})
    except HelixError:
        raise
    except Exception as error:  # a missing key, for example: each client has its own error
        raise InvalidArgument(f"Model {name!r} cannot be opened: {error}") from error


def as_model(llm: LLM | str) -> LLM:
    """Return the model; a name becomes a model that is opened when it is first used."""
    if isinstance(llm, str):
        return NamedLLM(llm)
    if not hasattr(llm, "stream"):
        raise InvalidArgument(f"A model must be an LLM or a name such as 'anthropic:NAME', not {type(llm).__name__}.")
    return llm


def parse_model(name: str) -> ModelName:
    """Parse a name. Raises `InvalidArgument` if no such provider is installed."""
    provider, _, rest = name.partition(":")
    model, _, query = rest.partition("?")
    known = {*_ADAPTERS, *(entry.name for entry in entry_points(group=ENTRY_POINTS))}
    if provider not in known or not model:
        raise InvalidArgument(
            f"Invalid model {name!r}: expected 'provider:model'. Known providers: {', '.join(sorted(known))}."
        )
    options = {option: _value(text) for option, text in parse_qsl(query, keep_blank_values=True)}
    if "api_key" in options:
        raise InvalidArgument("A model's name must not contain its api_key: set the environment variable instead.")
    return ModelName(provider, model, options)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _adapter(provider: str) -> Callable[..., LLM]:
    if provider in _ADAPTERS:
        module, _, adapter = _ADAPTERS[provider].partition(":")
        return cast(Callable[..., LLM], getattr(import_module(f".{module}", __package__), adapter))
    (entry, *_) = entry_points(group=ENTRY_POINTS, name=provider)
    return cast(Callable[..., LLM], entry.load())


class NamedLLM:
    """A model that is opened when it is first used, once per event loop: clients cannot move between loops."""

    def __init__(self, name: str) -> None:
        self.name = name
        parsed = parse_model(name)
        self.model = parsed.model
        self.options = parsed.options
        self.provider = parsed.provider.removesuffix("-chat")
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[LLM]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<model {self.name}>"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Call the model. Raises `ModelError`."""
        try:
            llm = await self._open()
        except (InvalidArgument, ImportError) as error:
            raise ModelError(str(error)) from error
        events = llm.stream(request)
        try:
            async for event in events:
                yield event
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        """Close the client of this event loop, if there is one. A later request opens another."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            close = getattr(await opened, "close", None)
            if close is not None:
                await close()

    async def _open(self) -> LLM:
        loop = asyncio.get_running_loop()
        opening = self._opened.get(loop)
        if opening is None:
            opening = self._opened[loop] = asyncio.ensure_future(_open_elsewhere(self.name))
        try:
            return await asyncio.shield(opening)
        except (InvalidArgument, ImportError):
            self._opened.pop(loop, None)  # a key or a package may be there the next time
            raise


async def _open_elsewhere(name: str) -> LLM:
    """Open a model in a thread, because importing a client would block the event loop for a second."""
    return open_model(name) if sys.platform == "emscripten" else await asyncio.to_thread(open_model, name)
