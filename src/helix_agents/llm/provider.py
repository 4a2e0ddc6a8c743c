"""ProviderLLM: what the adapters on official clients share.

A subclass builds the request, opens the stream and reads its events. This module repeats a request once without the
reasoning that the provider rejects, and turns every failure into a `ModelError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from json import JSONDecodeError
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from ..codec import decode, encode
from ..errors import ModelError, StoreCorrupt
from ..safe_text import get_logger
from .contract import ModelEvent, ModelRequest, NativeContent
from .native import Block, Native, can_be_sent_back

logger = get_logger("helix_agents.llm")

TRANSPORTS = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "anyio", "aiohttp"})
"""The libraries that the official clients read with. Not all of their errors are wrapped by the clients."""

RETRYABLE_STATUS = frozenset({408, 409, 425, 429})


class ReasoningRejected(ModelError):
    """The provider rejects reasoning that it gave earlier. Without it, the request may pass."""


class Reply(Protocol):
    """One reply while it arrives."""

    def take(self, event: Any) -> Iterable[ModelEvent]:
        """Return what one event of the provider's stream says."""
        ...

    def end(self) -> Iterable[ModelEvent]:
        """Return what is known only at the end. Raises `ModelError` if the stream ended early."""
        ...


class ProviderLLM(ABC):
    """A model behind an official client. `options` go into every request; an option that is None is left out."""

    provider: ClassVar[str]
    """The provider, for traces and fingerprints."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        self.model = model
        self.options = {name: value for name, value in options.items() if value is not None}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Ask the model. Raises `ModelError`.

        If the provider rejects earlier reasoning, ask once more without it: each later request would fail as well.
        """
        body = self._body(request, with_reasoning=True)
        try:
            async with aclosing(self._ask(body, with_reasoning=True)) as events:
                async for event in events:
                    yield event
            return
        except ReasoningRejected as error:
            plain = self._body(request, with_reasoning=False)
            if plain == body:
                raise
            logger.warning("Session %s: retrying without earlier reasoning: %s", request.session_id, error)
        async with aclosing(self._ask(plain, with_reasoning=False)) as events:
            async for event in events:
                yield event

    async def _ask(self, body: dict[str, Any], *, with_reasoning: bool) -> AsyncGenerator[ModelEvent, None]:
        reply = self._reply(cut=not with_reasoning)
        try:
            wanted: dict[str, Any] | None = body
            while wanted is not None:
                async with aclosing(self._events(wanted)) as events:
                    async for event in events:
                        for out in _read(reply, event):
                            yield out
                wanted = self._continued(body, reply)
        except ModelError:
            raise
        except JSONDecodeError as error:
            raise ModelError(f"The model endpoint sent an event that is not JSON: {error}", retryable=True) from error
        except Exception as error:
            known = self._model_error(error) or _transport_error(error)
            if known is None:
                raise
            raise known from error
        for out in reply.end():
            yield out

    @abstractmethod
    def _body(self, request: ModelRequest, *, with_reasoning: bool) -> dict[str, Any]:
        """Return the arguments of the client's call."""

    @abstractmethod
    def _events(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        """Call the client and yield the events of its stream."""

    @abstractmethod
    def _reply(self, *, cut: bool) -> Reply:
        """Return an empty reply. `cut`: it is given without the reasoning before it."""

    def _continued(self, body: dict[str, Any], reply: Any) -> dict[str, Any] | None:
        """Return the request that continues a paused reply, given the first one; None if the reply is over."""
        return None

    @abstractmethod
    def _model_error(self, error: Exception) -> ModelError | None:
        """Translate an error of the client; None if it is not one."""

    @abstractmethod
    async def close(self) -> None:
        """Close the client, unless the caller provided it."""


def _read(reply: Reply, event: Any) -> Iterable[ModelEvent]:
    try:
        return reply.take(event)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ModelError(f"The model endpoint sent an event that cannot be read: {error!r}", retryable=True) from error


def _transport_error(error: Exception) -> ModelError | None:
    """Clients wrap the errors of their transport while they connect, but not all of them while they read."""
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in TRANSPORTS:
        return ModelError(f"The connection to the model endpoint was lost during its reply: {error!r}", retryable=True)
    return None


def is_retryable_status(status: int) -> bool:
    """Report whether the same request may succeed later."""
    return status in RETRYABLE_STATUS or status >= 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the endpoint asks the caller to wait, if it says so."""
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / per_second
        except (KeyError, ValueError):
            continue
    return None


def issuer_at(provider: str, base_url: str, home: str) -> str:
    """Return the issuer behind an address: the provider itself at its own host, else `provider@host/path`."""
    url = urlsplit(base_url)
    if url.hostname == home:
        return provider
    port = f":{url.port}" if url.port else ""
    return f"{provider}@{url.hostname}{port}{url.path.rstrip('/')}"


def native_content(dialect: str, issuer: str, model: str, blocks: list[Block], *, cut: bool) -> list[ModelEvent]:
    """Return the event for a reply's blocks; nothing if they would not survive."""
    if not can_be_sent_back(blocks):
        return []
    native: Native = {"dialect": dialect, "issuer": issuer, "model": model, "blocks": blocks}
    if cut:
        native["cut"] = True
    return [NativeContent(native)]


def sendable(value: Any) -> Any:
    """Return a value whose text UTF-8 can carry. A lone surrogate is stored as it is, but no request can hold it."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {sendable(name): sendable(member) for name, member in value.items()}
    return [sendable(item) for item in value] if isinstance(value, list | tuple) else value


def is_compact(text: str) -> bool:
    """Report whether JSON text comes out the same when it is read and written again."""
    try:
        return encode(decode(text)) == text
    except StoreCorrupt:
        return False
