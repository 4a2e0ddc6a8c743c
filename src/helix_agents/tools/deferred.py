"""DeferredCall: what a tool gets when it hands its work to an external job."""

from __future__ import annotations

import msgspec

from ..errors import InvalidArgument


class DeferredCall(msgspec.Struct, frozen=True):
    """A call that waits for its result: by `POST` to `url`, or by `submit_tool_result(session_id, tool_call_id, ...)`.

    `token` and `url` let their holder complete this call and nothing else.
    """

    session_id: str
    tool_call_id: str
    deadline_at: int | None
    signed: str | None = None
    address: str | None = None

    @property
    def token(self) -> str:
        """The token that completes the call. Raises `InvalidArgument` if the executor has no secret to sign it with."""
        if self.signed is None:
            raise InvalidArgument("A token needs AgentExecutor(secret=...), the same in every process.")
        return self.signed

    @property
    def url(self) -> str:
        """The URL that completes the call. Raises `InvalidArgument` if the executor does not know its address."""
        if self.address is None:
            raise InvalidArgument("A URL needs AgentExecutor(public_url=...): where the server can be reached.")
        return f"{self.address}/hooks/{self.token}"
