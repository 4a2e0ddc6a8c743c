"""FallbackLLM: several models in order of preference; when one fails, the next one answers.

An adapter like any other. What a failed model has said so far is taken back (`StartOver`), so that an answer is always
whole and by one model. Waiting and trying again is the executor's business, once all of them have failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ..errors import InvalidArgument, ModelError
from ..safe_text import get_logger
from .contract import LLM, ModelEvent, ModelRequest, StartOver

logger = get_logger("helix_agents.llm")


class FallbackLLM:
    """Asks the first model, and the next one when it fails, whatever the reason."""

    def __init__(self, models: Sequence[LLM]) -> None:
        if isinstance(models, str) or not isinstance(models, Sequence) or not models:
            raise InvalidArgument("FallbackLLM takes a list of at least one model.")
        for model in models:
            if not hasattr(model, "stream"):
                raise InvalidArgument(f"FallbackLLM: {model!r} is not a model: it has no stream().")
        self._models = tuple(models)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """The answer of the first model that gives a whole one. Raises `ModelError` if none does."""
        errors: list[ModelError] = []
        for model in self._models:
            if errors:
                logger.warning("A model failed, the next one is asked: %s", errors[-1])
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
        """Close those models that can be closed."""
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
