"""A transport for httpx on JavaScript's `fetch`, for model clients inside a Worker, where there are no sockets.

Google's client has none, and the one that Anthropic's uses returns memory views, which that client cannot read. Works
with both generations of the library, `httpx` and `httpx2`. Imported only inside a Worker.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from js import AbortController, Object, clearTimeout, fetch, setTimeout
from pyodide.ffi import JsException, to_js


class FetchTransport:
    """Sends requests with `fetch`. The `connect` timeout of httpx covers the time until the head of a response
    arrives."""

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, and return the response as soon as its head is there."""
        httpx = sys.modules[type(request).__module__.partition(".")[0]]
        limits = request.extensions.get("timeout", {})
        abort = AbortController.new()
        options = {
            "method": request.method,
            "headers": {name: text for name, text in request.headers.items() if name not in ("host", "content-length")},
            "body": to_js(await request.aread()) if request.method not in ("GET", "HEAD") else None,
            "signal": abort.signal,
        }
        sending = fetch(str(request.url), to_js(options, dict_converter=Object.fromEntries))
        found = await _within(limits.get("connect"), sending, abort, httpx.ConnectTimeout, httpx.ConnectError)
        headers = dict(found.headers.entries())
        headers.pop("content-encoding", None)  # fetch has decoded it
        return httpx.Response(found.status, headers=headers, content=_parts(found.body, abort, limits, httpx))

    async def aclose(self) -> None:
        """Do nothing: the runtime owns the connections."""

    async def __aenter__(self) -> FetchTransport:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


async def _parts(body: Any, abort: Any, limits: dict[str, Any], httpx: Any) -> AsyncIterator[bytes]:
    if not body:
        return
    reader = body.getReader()
    try:
        while True:
            part = await _within(limits.get("read"), reader.read(), abort, httpx.ReadTimeout, httpx.ReadError)
            if part.done:
                return
            yield part.value.to_bytes()
    finally:
        abort.abort()  # a response that is not read to its end


async def _within(seconds: float | None, promise: Any, abort: Any, late: Any, broken: Any) -> Any:
    """Await a promise. Raises `late` after this many seconds, and `broken` if it is rejected."""
    timer = setTimeout(abort.abort.bind(abort), int(seconds * 1000)) if seconds else None
    try:
        return await promise
    except JsException as error:
        raise (late if error.name == "AbortError" else broken)(str(error)) from error
    finally:
        if timer is not None:
            clearTimeout(timer)
