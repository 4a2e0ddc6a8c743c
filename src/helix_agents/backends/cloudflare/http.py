"""HTTP to Cloudflare: one client session, created on first use; failures become errors of this library."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ...codec import decode, encode
from ...errors import InvalidArgument, StoreCorrupt, StoreError, StoreUnavailable

try:
    import aiohttp
except ImportError as missing:  # pragma: no cover
    raise ImportError("Cloudflare from outside needs aiohttp: pip install 'helix-agents[cloudflare]'") from missing

TIMEOUT_SECONDS = 30.0
HEARTBEAT_SECONDS = 20.0
MAX_AT_ONCE = 100
"""How many requests and handshakes are under way; others wait for a turn, which their timeout does not count."""
FAILURES = (aiohttp.ClientError, TimeoutError, OSError, RuntimeError)
"""What aiohttp raises; `RuntimeError` if the client session was closed concurrently."""


class HttpClient:
    """Requests to one place with one token. The token appears in no error and no repr."""

    def __init__(self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgument(f"The address of a Worker looks like https://name.example.workers.dev, not {url!r}.")
        if not token:
            raise InvalidArgument(f"No token for {parts.hostname}: pass the one that the Worker was deployed with.")
        self.base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self.timeout_seconds = timeout_seconds
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"

    @property
    def token(self) -> str:
        """The secret itself, to sign with."""
        return self._token

    @property
    def session(self) -> aiohttp.ClientSession:
        """The client session; created here because it belongs to the running loop."""
        if self._session is None:
            self._turns = asyncio.Semaphore(MAX_AT_ONCE)
            # Without a limit, since WebSockets stay open.
            self._session = aiohttp.ClientSession(
                headers={"authorization": f"Bearer {self._token}"},
                timeout=aiohttp.ClientTimeout(total=self.timeout_seconds),
                connector=aiohttp.TCPConnector(limit=0),
            )
        return self._session

    async def post(self, path: str, body: Any, *, repeatable: bool = False) -> tuple[int, Mapping[str, Any]]:
        """Status and JSON of the reply. `repeatable`: may be sent again if a reused connection turns out to be dead."""
        data = encode(body).encode()
        try:
            return await self._post(path, data)
        except aiohttp.ServerDisconnectedError as error:
            if not repeatable:
                raise unreachable(self.base, error) from error
        except FAILURES as error:
            raise unreachable(self.base, error) from error
        try:
            return await self._post(path, data)
        except FAILURES as error:
            raise unreachable(self.base, error) from error

    async def _post(self, path: str, data: bytes) -> tuple[int, Mapping[str, Any]]:
        headers = {"content-type": "application/json"}
        session = self.session
        async with self._turns, session.post(self.base + path, data=data, headers=headers) as reply:
            text = await reply.read()
            status = reply.status
        if status in (401, 403):
            raise not_allowed(self.base)
        if status == 429 or status >= 500:
            raise StoreUnavailable(
                f"{self.base} replied {status}: {text[:200].decode(errors='replace')}. Try again later.",
                nothing_written=status == 429,
            )
        try:
            body = decode(text)
        except StoreCorrupt as error:
            raise StoreError(f"{self.base} replied {status}, but not with JSON: is this the bridge Worker?") from error
        return status, body if isinstance(body, dict) else {}

    async def socket(self, path: str) -> aiohttp.ClientWebSocketResponse:
        """Return an open WebSocket. Raises `StoreUnavailable` (nothing written) if it does not open."""
        address, session = self.base.replace("http", "ws", 1) + path, self.session
        try:
            async with self._turns, asyncio.timeout(self.timeout_seconds):
                return await session.ws_connect(address, max_msg_size=0, compress=0, heartbeat=HEARTBEAT_SECONDS)
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise not_allowed(self.base) from error
            if error.status < 500 and error.status != 429:
                raise other_version(self.base) from error
            raise unreachable(self.base, error, nothing_written=True) from error
        except FAILURES as error:
            raise unreachable(self.base, error, nothing_written=True) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def unreachable(base: str, error: BaseException, *, nothing_written: bool = False) -> StoreUnavailable:
    """Return the error for a failed connection; unless stated otherwise, the request may have been executed."""
    # Not its repr: that of a refused handshake has the headers of the request, and so the token.
    if isinstance(error, aiohttp.ClientResponseError):
        why = f"it replied {error.status}"
    else:
        why = str(error) or type(error).__name__
    return StoreUnavailable(f"{base} cannot be reached: {why}. Try again.", nothing_written=nothing_written)


def not_allowed(base: str) -> StoreError:
    """Return the error for a wrong token."""
    return StoreError(f"{base} does not accept this token: pass the secret that it was deployed with.")


def other_version(base: str) -> StoreError:
    """Return the error for a server that is not the bridge of this library."""
    return StoreError(
        f"{base} is not a bridge of the version that this library speaks: deploy the bridge Worker that comes with it "
        "(helix_agents/backends/cloudflare/bridge_worker)."
    )
