"""HTTP from inside a Worker, by JavaScript's `fetch`: there are no sockets. Imported only there."""

from __future__ import annotations

from collections.abc import Mapping

from js import AbortSignal, fetch
from pyodide.ffi import JsException, to_js

from .bindings import js_options


async def post(url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> int:
    """Send a request and return the status of the response. Does not follow redirects. Raises `OSError`."""
    options = {"method": "POST", "headers": headers, "body": to_js(body), "redirect": "manual"}
    try:
        signal = AbortSignal.timeout(int(timeout_seconds * 1000))
        return int((await fetch(url, js_options({**options, "signal": signal}))).status)
    except JsException as error:
        raise OSError(str(error)) from error
