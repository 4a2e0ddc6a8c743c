"""The official OpenAI client, for both of its protocols: how it is created, and how its errors are translated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError
from .parts import MEBIBYTE
from .provider import ProviderLLM, ReasoningRejected, is_retryable_status, issuer_at, retry_after

try:
    import openai
except ImportError as error:  # pragma: no cover
    raise ImportError("OpenAI models need the openai client: pip install 'helix-agents[openai]'.") from error

HOME = "api.openai.com"
MAX_CHARS = dict.fromkeys(("image", "audio", "file"), 50 * MEBIBYTE * 4 // 3)
"""In base64 characters: a request may hold 50 MB of files."""
RETRYABLE_CODES = frozenset({"server_error", "rate_limit_exceeded", "vector_store_timeout"})
NOT_RETRYABLE_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes that come with status 429 but do not go away by waiting."""

REJECTIONS = ("encrypted content", "required following item", "required 'reasoning'", "items are not persisted")
"""What the API says about a reasoning item that it cannot read or find."""


class OpenAIClientLLM(ProviderLLM):
    """A model behind the OpenAI client. A given `client` (for example `AsyncAzureOpenAI`) is not closed."""

    provider = "openai"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None,
        base_url: str | None,
        timeout_seconds: float,
        client: Any,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(model, options)
        self._owns_client = client is None
        self._client = client or openai.AsyncOpenAI(
            api_key=api_key, base_url=base_url, timeout=timeout_seconds, max_retries=0
        )
        self.issuer = issuer_at("openai", str(self._client.base_url), HOME)

    async def close(self) -> None:
        """Close the client, unless the caller provided it."""
        if self._owns_client:
            await self._client.close()

    def _model_error(self, error: Exception) -> ModelError | None:
        if isinstance(error, openai.APIStatusError):
            return _status_error(error)
        if isinstance(error, openai.APITimeoutError):
            return ModelError("The model endpoint did not reply in time.", retryable=True)
        if isinstance(error, openai.APIConnectionError):
            return ModelError(f"The connection to the model endpoint failed: {error}", retryable=True)
        if isinstance(error, openai.APIError):  # an error event inside the stream
            return ended_early(error.message, error.code, retryable=error.code not in NOT_RETRYABLE_CODES)
        if isinstance(error, openai.OpenAIError):
            return ModelError(f"The model cannot be called: {error}")
        return None


def ended_early(message: Any, code: Any, *, retryable: bool) -> ModelError:
    """Return the error for a stream that the endpoint itself gives up."""
    return ModelError(f"The model endpoint ended its reply early: {message} ({code})", retryable=retryable)


def _status_error(error: openai.APIStatusError) -> ModelError:
    status, said = error.status_code, f"The model endpoint returned {error.status_code}: {error.message}"
    if status in (400, 404) and any(words in said.lower() for words in REJECTIONS):
        return ReasoningRejected(said)
    return ModelError(
        said,
        retryable=is_retryable_status(status) and error.code not in NOT_RETRYABLE_CODES,
        retry_after_seconds=retry_after(error.response.headers),
    )
