"""The fingerprint of a model request: a few hundred bytes that identify what the model was sent, for
`Checkpoint.request`.

Two steps with the same digest were sent the same text. The texts themselves are stored once per version, as blobs that
all sessions share. Instructions computed from the state are not stored, because they may quote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ...agent import Agent
from ...codec import Json, encode
from ...errors import HelixError
from ...llm.contract import LLM, ModelRequest, ToolSpec
from ...safe_text import get_logger
from ...stores.blobs.contract import BlobStore
from ...stores.blobs.spaces import REQUESTS
from .model_call import named

logger = get_logger("helix_agents.executor")

VERSION = 1
MAX_KNOWN = 256


class Fingerprints:
    """Computes the fingerprints of one executor's requests and stores their texts."""

    def __init__(self, blobs: BlobStore | None) -> None:
        self._blobs = blobs
        self._stored: set[str] = set()
        self._tools: dict[tuple[Any, ...], tuple[Sequence[ToolSpec], str, str]] = {}

    async def of(self, request: ModelRequest, llm: LLM, agent: Agent, window: list[int] | None) -> dict[str, Json]:
        """Return the fingerprint of a request. `window`: the range of stored messages sent, None if others were
        sent."""
        instructions, (tools_text, tools) = digest(request.instructions), self._tools_digest(request.tools)
        texts = {tools: tools_text}
        if agent.has_static_instructions:
            texts[instructions] = request.instructions
        await self._store(texts)
        made: dict[str, Json] = {
            "v": VERSION,
            "model": _model_name(llm),
            "instructions": instructions,
            "tools": tools,
            "window": [*window] if window is not None else None,
        }
        options = getattr(llm, "options", None)
        if isinstance(options, dict) and options:
            made["options"] = digest(repr(sorted(options.items())))
        if request.tool_choice != "auto":
            made["tool_choice"] = request.tool_choice
        if agent.version is not None:
            made["agent"] = agent.version
        return made

    async def _store(self, texts: dict[str, str]) -> None:
        """Store texts that this executor has not stored yet. Best effort: a run does not depend on them."""
        if self._blobs is None or self._stored.issuperset(texts):
            return
        try:
            for name, text in texts.items():
                if name not in self._stored:
                    await self._blobs.put(REQUESTS, _bytes(text), media_type="text/plain")
                    self._stored.add(name)
        except HelixError as error:
            logger.warning("Could not store the texts of a model request: %s", error)

    def _tools_digest(self, tools: Sequence[ToolSpec]) -> tuple[str, str]:
        """Return the text and the digest of tool specs, cached by schema: specs are created per request, schemas are
        not."""
        key = tuple((spec.name, spec.description, id(spec.input_schema)) for spec in tools)
        known = self._tools.get(key)
        if known is None:
            text = encode([[spec.name, spec.description, spec.input_schema] for spec in tools])
            if len(self._tools) >= MAX_KNOWN:
                self._tools.clear()
            known = self._tools[key] = (tuple(tools), text, digest(text))  # keeps the specs alive, and so their ids
        return known[1:]


@lru_cache(maxsize=MAX_KNOWN)
def digest(text: str) -> str:
    """Return the digest of a text; a blob of the text has the same digest."""
    return f"sha256:{hashlib.sha256(_bytes(text)).hexdigest()}"


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _model_name(llm: LLM) -> str:
    """Return `provider:model` if the adapter has these names, else the adapter's type."""
    provider, model = named(llm, "provider"), named(llm, "model")
    if model is None:
        return type(llm).__name__
    return model if provider is None else f"{provider}:{model}"
