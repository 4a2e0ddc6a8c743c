"""StreamServer: a Durable Object class that holds streams, for Workers that keep their sessions in D1.

    from helix_agents.cloudflare import StreamServer    # in the entry module, where wrangler finds it by name

Each stream has an object of its own. Workers reach it through `DurableObjectStreamManager(env.STREAMS)`, browsers
through the WebSocket that the Worker passes on (`streams.websocket(...)`): the object serves it, and may hibernate
while it stays open. Imported only inside a Worker.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from workers import DurableObject, Response

from ...clock import system_clock
from ...codec import decode, encode
from ...errors import HelixError, StreamCursorAhead, StreamTruncated
from ..sql_shared.driver import BatchRefused, Statement
from . import sockets
from .bindings import ObjectStorage
from .durable_object import DOStreamManager

TTL = "ttl_seconds"
GRACE = 1.1
"""An object is emptied a tenth of the ttl after its stream has expired."""


class StreamServer(DurableObject):  # type: ignore[misc]  # untyped: it exists only inside a Worker
    """Holds one stream, wakes the Workers that read it and serves the browsers that watch it."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.storage = ObjectStorage(self.ctx.storage)
        self.streams = DOStreamManager(self.ctx, storage=self.storage)

    # -- for Workers, by RPC

    async def exchange(self, text: str) -> str:
        """Run a batch and wake the readers of the stream that it changed. JSON in, JSON out."""
        request = decode(text)
        changed = request.get("changed")
        if changed is None and self.storage.is_empty():  # nothing was ever written: nothing to create tables for
            return encode({"results": [[] for _ in request["batch"]]})
        try:
            await self.streams.prepare()
            if changed is not None:
                await self._keep_until(request.get("ttl") or 0)
            reply = self.storage.exchange([(sql, params) for sql, params in request["batch"]])
        except (HelixError, BatchRefused) as error:
            return encode({"error": str(error.__cause__ or error)})  # in SQLite's words, which the other end reads
        if changed is not None:
            sockets.wake_readers(self.ctx, changed)
            self.streams.deliver(changed)
        return encode(
            {"results": reply.results, "written": reply.rows_written, "read": reply.rows_read, "size": reply.size}
        )

    async def forget(self) -> None:
        """Empty the object, unless it holds a stream: one may have been created since the last was deleted."""
        if self._last_change() is None:
            await self._empty()

    async def _empty(self) -> None:
        """Remove everything. Browsers and readers are disconnected, so that they do not see the next stream."""
        sockets.close_all(self.ctx)
        await self.storage.empty()

    def _last_change(self) -> int | None:
        """Return when a stream of this object was last changed; None if there is none."""
        if self.storage.is_empty():
            return None
        ((last,),) = self.storage.batch_now([Statement("SELECT MAX(updated_at) FROM __agents_streams")])[0]
        return None if last is None else int(last)

    # -- for sockets

    async def fetch(self, request: Any) -> Any:
        """Accept the WebSocket of a Worker that reads, or of a browser."""
        url = urlsplit(request.url)
        query = {name: texts[0] for name, texts in parse_qs(url.query).items()}
        if (request.headers.get("upgrade") or "").lower() != "websocket":
            return _json({"error": "This object takes WebSockets only."}, 426)
        if url.path == "/reader":
            return Response(None, status=101, web_socket=sockets.accept_reader(self.ctx))
        if url.path != "/browser" or "stream" not in query:
            return _json({"error": "Ask for /reader or /browser?stream=..."}, 404)
        user_id, most = query.get("user", ""), query.get("most")
        if most is not None and sockets.count_of_user(self.ctx, user_id) >= int(most):
            return _json({"error": f"You have {most} open WebSockets on this stream: close one first."}, 429)
        try:
            client = await self.streams.accept(
                query["stream"],
                from_sequence=int(query.get("from_sequence", 0)),
                follow=query.get("follow") == "true",
                tell=decode(query.get("tell", "{}")),
                user_id=user_id,
            )
        except StreamCursorAhead as error:
            return _json({"error": str(error), "latest_sequence": error.latest_sequence}, 416)
        except StreamTruncated as error:
            return _json({"error": str(error), "first_sequence": error.first_sequence}, 410)
        return Response(None, status=101, web_socket=client)

    async def webSocketMessage(self, socket: Any, message: Any) -> None:  # the runtime's name
        """Ignore it: clients only listen."""

    async def webSocketClose(self, socket: Any, code: int, reason: str, clean: bool) -> None:
        """Close our side as well."""
        with suppress(Exception):
            socket.close(sockets.NORMAL_CLOSURE)

    # -- forgetting

    async def _keep_until(self, ttl_seconds: int) -> None:
        if ttl_seconds != self.storage.recall(TTL, 0):
            self.storage.remember(TTL, ttl_seconds)
        if ttl_seconds:
            await self.storage.wake_by(system_clock() + int(ttl_seconds * 1000 * GRACE))

    async def alarm(self, info: Any = None) -> None:
        """Empty the object if its stream has expired; otherwise set the alarm for that time."""
        if self.storage.is_empty():
            return
        due = (self._last_change() or 0) + int(self.storage.recall(TTL, 0) * 1000 * GRACE)
        if due > system_clock():
            await self.storage.wake_by(due)
        else:
            await self._empty()


def _json(value: Any, status: int) -> Any:
    return Response(encode(value), status=status, headers={"content-type": "application/json"})
