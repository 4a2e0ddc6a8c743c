"""`route`: from a request to the Durable Object of its session.

A stranger costs nothing: the token is checked before the body is read, its length before it is parsed, its nesting
before a parser recurses, and all of it before any object is created. Imported only inside a Worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ...backends.cloudflare.bindings import ensure_binding
from ...clock import random_id
from ...codec import encode
from ...executor import HookTokens
from ...server.auth import Authenticate, authenticated
from ...server.hosts import HostRules
from ...server.limits import Limits
from ...server.problems import Problem
from .web import OF_A_SESSION, Address, body_of, connection_of, not_a_hook, rejection, session_in, with_body

COMMON = "helix"
"""The object for what belongs to no session: /healthz, /agents, preflight requests."""


async def route(
    namespace: Any,
    request: Any,
    *,
    authenticate: Authenticate | None = None,
    allow_origins: Sequence[str] = (),
    max_body_bytes: int = Limits().max_body_bytes,
    location_hint: str | None = None,
    secret: str | Sequence[str] | None = None,
) -> Any:
    """Pass a request to the object of its session: the one that the path, the body or `?object=` names.

    Give it the same `authenticate` as your `AgentServer`: then a stranger is rejected here, and no object is created
    for it. Without it the object rejects the stranger, before it stores anything. `location_hint` ("weur", "enam", ...)
    says where a new object should live; for a jurisdiction pass `namespace.jurisdiction("eu")`. `secret`: the one of
    your executor, so that `POST /hooks/{token}` reaches the object whose deferred call the token completes.
    """
    objects = ensure_binding(
        namespace,
        "getByName",
        is_not="a Durable Object namespace",
        hint='Pass the binding that wrangler.jsonc names under "durable_objects", for example env.ASSISTANTS.',
    )
    address = Address(request)
    try:
        if authenticate is not None and not address.is_public and address.token is None:
            connection = connection_of(request, None)
            HostRules(allow_hosts=["*"], allow_origins=allow_origins, loopback_only=False).ensure_origin(connection)
            await authenticated(authenticate, connection)
        if address.token is not None:
            name = address.object or _name_in_token(address.token, secret)
        elif address.starts_session:
            name, request = await _name_in_body(request, address, max_body_bytes)
        else:
            name = _name_in_path(address)
    except Exception as error:
        return rejection(error)
    options = {} if location_hint is None else {"locationHint": location_hint}
    return await objects.getByName(name, **options).fetch(request.js_object)


def _name_in_token(token: str, secret: str | Sequence[str] | None) -> str:
    """Return the root session that a token was signed for. Sub-agents live in its object; for forks say `?object=`."""
    target = HookTokens(secret, None).read(token)
    if target is None:
        raise not_a_hook()
    return target.session_id.partition("/")[0]


def _name_in_path(address: Address) -> str:
    if address.is_public:
        return COMMON
    if address.object:
        return address.object
    if address.kind in OF_A_SESSION and address.rest and address.rest[0]:
        return address.rest[0]
    if address.kind in OF_A_SESSION:
        raise Problem(404, "not_found", "Every session is a separate Durable Object here: request one by its id.")
    return COMMON


async def _name_in_body(request: Any, address: Address, max_body_bytes: int) -> tuple[str, Any]:
    """Return the object that the body names, and the request. A session without an id gets one: it names the object."""
    body = await body_of(request, max_body_bytes)
    value, session_id = session_in(body, address)
    if isinstance(value, dict) and address.kind == "execute" and not session_id:
        session_id = value["session_id"] = _new_session(request)
        body = encode(value).encode()
    return address.object or session_id or COMMON, with_body(request, body)


def _new_session(request: Any) -> str:
    """Return the same id for the same key of the same client, so that a repeated request starts nothing.

    The client's token is part of it: nobody else can compute the id.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return random_id()
    text = encode([request.headers.get("authorization"), key])
    return f"session-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
