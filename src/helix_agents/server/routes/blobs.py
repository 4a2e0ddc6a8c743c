"""Routes for the images and files of a session, with the session's own access rule."""

from __future__ import annotations

import re

from starlette.responses import Response

from ...errors import InvalidArgument
from ...stores.blobs.contract import OCTETS, BlobInfo, BlobRef, BlobStore
from ..endpoints import Call, Endpoint
from ..problems import Problem
from ..requests import json_response, read_bytes

MAX_UPLOAD_BYTES = 25_000_000
SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types that a browser may show. All others are downloads, because they may hold scripts."""

_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


async def upload(call: Call) -> Response:
    """Store the body, whatever its type, and return a reference for the content parts of messages."""
    session = await call.session()
    blobs = _blobs(call)
    media_type = call.request.headers.get("content-type", OCTETS).partition(";")[0].strip().lower() or OCTETS
    data = await read_bytes(call.request, min(MAX_UPLOAD_BYTES, blobs.max_bytes))
    ref = await blobs.put(session.root_session_id or session.session_id, data, media_type=media_type)
    return json_response({"blob": ref.digest, "media_type": ref.media_type, "size": ref.size}, 201)


async def download(call: Call) -> Response:
    """Return a blob, or the range of it that is asked for."""
    session = await call.session()
    blobs, space, digest = _blobs(call), session.root_session_id or session.session_id, call.path("digest")
    info = (await blobs.stat(space, [digest])).get(digest)
    if info is None:
        raise Problem(404, "not_found", f"The session has no blob {digest}.")
    start, end = _range(call.request.headers.get("range", ""), info)
    data = await blobs.get(space, digest, offset=start, limit=end - start)
    if data is None:
        raise Problem(404, "not_found", f"The session has no blob {digest}.")
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": "inline" if info.media_type in SHOWN else "attachment",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, max-age=31536000, immutable",
        "Accept-Ranges": "bytes",
    }
    if end - start == info.size:
        return Response(data, 200, headers, media_type=info.media_type)
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{info.size}"
    return Response(data, 206, headers, media_type=info.media_type)


def _blobs(call: Call) -> BlobStore:
    blobs = call.context.executor.services.blobs
    if blobs is None:
        raise InvalidArgument("This server has no blob store: pass blob_store= to its AgentExecutor.")
    return blobs


def _range(header: str, info: BlobInfo) -> tuple[int, int]:
    """Return the first byte and the one after the last. A range of another form is ignored, as HTTP allows."""
    found = _RANGE.fullmatch(header.strip())
    if found is None:
        return 0, info.size
    start, last = int(found[1]), int(found[2]) if found[2] else info.size - 1
    if start >= info.size or last < start:
        raise Problem(416, "range_not_satisfiable", f"The blob has {info.size} bytes.", size=info.size)
    return start, min(last + 1, info.size)


ENDPOINTS = (
    Endpoint("POST", "/sessions/{session_id:id}/blobs", upload, "Store an image or a file", 201, returns=BlobRef),
    Endpoint("GET", "/sessions/{session_id:id}/blobs/{digest}", download, "An image or a file", large=True),
)
