"""FallbackLLM: several models in order of preference; if one fails, the next one is called.

An adapter like any other. The output of a failed model is discarded (`StartOver`), so a reply is always whole and by
one model. The executor waits and retries once all of them have failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ..errors import InvalidArgument, ModelError
from ..safe_text import get_logger
from .contract import LLM, ModelEvent, ModelRequest, StartOver
from .named import as_model

logger = get_logger("helix_agents.llm")


class FallbackLLM:
    """Calls the first model, and the next one if it fails for any reason. A model may be given by its name."""

    def __init__(self, models: Sequence[LLM | str]) -> None:
        if isinstance(models, str) or not isinstance(models, Sequence) or not models:
            raise InvalidArgument("FallbackLLM takes a list of at least one model.")
        self._models = tuple(as_model(model) for model in models)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply of the first model that gives a whole one. Raises `ModelError` if none does."""
        errors: list[ModelError] = []
        for model in self._models:
            if errors:
                logger.warning("A model failed; trying the next one: %s", errors[-1])
                yield StartOver(str(errors[-1]))
            try:
                async for event in model.stream(request):
                    yield event
                return
            except ModelError as error:
                errors.append(error)
            except Exception as error:
                logger.warning("A model's adapter failed.", exc_info=True)
                errors.append(ModelError(f"The model's adapter failed: {type(error).__name__}: {error}"))
        raise _all_failed(errors)

    async def close(self) -> None:
        """Close the models that can be closed."""
        for model in self._models:
            close = getattr(model, "close", None)
            if close is not None:
                await close()


def _all_failed(errors: Sequence[ModelError]) -> ModelError:
    if len(errors) == 1:
        return errors[0]
    waits = [error.retry_after_seconds for error in errors if error.retry_after_seconds is not None]
    return ModelError(
        f"All {len(errors)} models failed: " + "; ".join(str(error) for error in errors),
        retryable=any(error.retryable for error in errors),
        retry_after_seconds=min(waits, default=None),
    )
