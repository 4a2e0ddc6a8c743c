"""Errors as `application/problem+json`: one table from our errors to status codes.

`code` is the snake_case name of the error's class. The fields of an error (ids, versions, sequences) are included;
tracebacks, messages of a database driver and other users' data never are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response

from .. import errors
from ..clock import random_id
from ..codec import Json, encode
from ..safe_text import get_logger

logger = get_logger("helix_agents.server")

RETRY_AFTER_SECONDS = 1

STATUS_OF: dict[type[Exception], int] = {
    errors.SessionNotFound: 404,
    errors.RunNotFound: 404,
    errors.CheckpointNotFound: 404,
    errors.AlreadyRunning: 409,
    errors.NotResumable: 409,
    errors.VersionConflict: 409,
    errors.SessionExists: 409,
    errors.IdempotencyConflict: 409,
    errors.IllegalTransition: 409,
    errors.RunLost: 409,
    errors.StreamNotActive: 409,
    errors.StreamFailed: 409,
    errors.NotSerializable: 400,
    errors.InvalidArgument: 400,
    errors.PatchError: 400,
    errors.StreamTruncated: 410,
    errors.StreamCursorAhead: 416,
    errors.StoreUnavailable: 503,
}
RESERVED = frozenset({"type", "title", "status", "code", "detail"})
CODES = (
    "agent_not_found",
    "already_answered",
    "already_running",
    "body_too_large",
    "call_gone",
    "checkpoint_not_found",
    "conversation_diverged",
    "forbidden",
    "idempotency_conflict",
    "illegal_transition",
    "internal_error",
    "invalid_argument",
    "method_not_allowed",
    "misdirected_request",
    "not_authenticated",
    "not_found",
    "not_resumable",
    "not_serializable",
    "patch_error",
    "request_timeout",
    "run_lost",
    "run_not_found",
    "session_exists",
    "session_not_found",
    "store_unavailable",
    "stream_cursor_ahead",
    "stream_failed",
    "stream_not_active",
    "stream_truncated",
    "too_many_requests",
    "unsupported_media_type",
    "version_conflict",
)
"""Every code that a client may get, for the OpenAPI document."""


class Problem(Exception):
    """An error response, ready to be sent."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Json,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members

    def response(self) -> Response:
        """Return the response."""
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.members,
        }
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **self.headers}
        return Response(encode(body), self.status, headers, media_type="application/problem+json")


def problem_of(error: Exception) -> Problem:
    """Return the problem that a client gets for an error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.StoreUnavailable):
        # The message may quote a driver, and with it hosts and file names, so it goes to the log only.
        logger.warning("The store is unavailable: %s", error)
        return Problem(
            503,
            "store_unavailable",
            "The store cannot be reached now: retry.",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    for kind in type(error).__mro__:
        if kind in STATUS_OF:
            return Problem(STATUS_OF[kind], code_of(kind), str(error), **error_fields(error))
    error_id = random_id()
    logger.error("Internal error %s", error_id, exc_info=error)
    return Problem(500, "internal_error", f"Internal error; the server's log has it as {error_id}.", error_id=error_id)


def code_of(kind: type[Exception]) -> str:
    """Return the snake_case name of an error's class."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def error_fields(error: Exception) -> dict[str, Json]:
    """Return the plain values that an error carries."""
    return {
        name: value
        for name, value in vars(error).items()
        if name not in RESERVED and not name.startswith("_") and isinstance(value, str | int) and value != ""
    }
