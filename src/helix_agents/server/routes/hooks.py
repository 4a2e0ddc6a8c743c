"""The route that completes deferred calls: the token of a call lets its holder submit the result, and nothing else."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...codec import Json
from ..answers import Receipt, continue_session
from ..endpoints import Call, Endpoint
from ..problems import Problem
from ..requests import json_response, parse_json, read_bytes

LOGGED_PATH = "/hooks/-"
"""What a server's access log shows instead of the token."""
REFUSALS = {
    "unknown": (404, "not_found", "There is no such route: /openapi.json lists them."),
    "gone": (410, "call_gone", "The session that waited for this result does not exist any more."),
    "late": (410, "call_gone", "This call was settled without its result, or its deadline has passed."),
    "duplicate": (409, "already_answered", "This call has its result already; this one changed nothing."),
}


async def complete(call: Call) -> Response:
    """Complete a deferred call. The body is its result: JSON, or any other text."""
    token = call.path("token")
    call.request.scope["path"] = LOGGED_PATH
    if call.context.executor.services.hook_tokens.read(token) is None:  # before a stranger's body is read
        raise Problem(*REFUSALS["unknown"])
    text = await read_bytes(call.request, call.context.limits.max_body_bytes)
    media_type = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    answer = _answer(text, is_json=media_type.endswith("json"))
    completion = await call.context.executor.complete_deferred(token, **answer)
    if (refusal := REFUSALS.get(completion.status)) is not None:
        raise Problem(*refusal)
    assert completion.session is not None
    root_id = completion.session.root_session_id or completion.session.session_id
    can_resume = (await call.context.executor.can_resume(root_id)).can_resume
    run_id = await continue_session(call.context, root_id) if can_resume else None
    return json_response(Receipt("accepted", can_resume, run_id))


def _answer(text: bytes, *, is_json: bool) -> dict[str, Any]:
    """Return a body as an answer: an object whose only member is `result` or `error` is one; anything else is a
    result."""
    if not text:
        return {"result": None}
    if not is_json:
        return {"result": text.decode("utf-8", "replace")}
    value = parse_json(text)
    if isinstance(value, dict) and (value.keys() == {"result"} or (value.keys() == {"error"} and _is_text(value))):
        return value
    return {"result": value}


def _is_text(value: dict[str, Json]) -> bool:
    return isinstance(value["error"], str)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/hooks/{token}",
        complete,
        "Complete a deferred call",
        returns=Receipt,
        public=True,
        tag="runs",
    ),
)
