"""D1 over Cloudflare's own HTTP API, for Python that runs elsewhere and needs nothing deployed.

Each batch is one request, atomic like any D1 batch. Slower than the bridge and limited to 1,200 requests in five
minutes: for tools and small services.
"""

from __future__ import annotations

from .http import TIMEOUT_SECONDS, HttpClient
from .wire import CloudflareDriver, Reply, WireStatement, refusal

API = "https://api.cloudflare.com"


class D1Rest(CloudflareDriver):
    """`SqlDriver` for the D1 database `database_id` of an account. `close` ends the connection."""

    def __init__(
        self,
        account_id: str,
        database_id: str,
        token: str,
        *,
        url: str = API,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__()
        self._http = HttpClient(url, token, timeout_seconds=timeout_seconds)
        self._path = f"/client/v4/accounts/{account_id}/d1/database/{database_id}/query"

    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        body = {"batch": [{"sql": sql, "params": params} for sql, params in batch]}
        status, answer = await self._http.post(self._path, body, repeatable=read_only)
        if not answer.get("success"):
            errors = answer.get("errors") or [{"message": f"status {status}"}]
            raise refusal("; ".join(str(each.get("message")) for each in errors))
        results = answer["result"]
        metas = [each.get("meta") or {} for each in results]
        return Reply(
            [[row.values() for row in each["results"]] for each in results],
            sum(meta.get("rows_written", 0) for meta in metas),
            sum(meta.get("rows_read", 0) for meta in metas),
            metas[-1].get("size_after", 0),
        )

    async def close(self) -> None:
        await self._http.close()
