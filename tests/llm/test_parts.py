"""Parts that are larger than a provider accepts: an error in a new message, a reference elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_agents.codec import encode
from helix_agents.errors import ModelError
from helix_agents.llm import anthropic, gemini, openai_client
from helix_agents.messages import Message
from tests.llm import test_anthropic, test_gemini, test_responses

PDF = "application/pdf"
Sent = Callable[[list[Message]], Awaitable[Any]]


@pytest.mark.parametrize(
    ("sent_for", "part", "allowed"),
    [
        (test_anthropic.sent_for, {"type": "image", "media_type": "image/png"}, anthropic.MAX_CHARS["image"]),
        (test_anthropic.sent_for, {"type": "file", "media_type": PDF}, anthropic.MAX_CHARS["file"]),
        (test_responses.sent_for, {"type": "file", "media_type": PDF}, openai_client.MAX_CHARS["file"]),
        (test_gemini.sent_for, {"type": "file", "media_type": PDF}, gemini.MAX_CHARS[PDF]),
    ],
)
async def test_a_part_that_is_too_large_is_refused_or_referred_to(sent_for: Sent, part: Any, allowed: int) -> None:
    large = {**part, "name": "a", "data": "A" * (allowed // 4 * 4 + 4)}
    with pytest.raises(
        ModelError, match=f"which has .* bytes, and the model takes {allowed * 3 // 4:,}: make it smaller"
    ):
        await sent_for([{"role": "user", "content": [large]}])
    made: Message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}
    result: Message = {"role": "tool", "tool_call_id": "c", "name": "f", "content": [large]}
    older: list[Message] = [{"role": "user", "content": [large]}, {"role": "user", "content": "Go on."}, made, result]
    assert encode(await sent_for(older)).count("left out, because it has") == 2


async def test_a_part_of_the_largest_size_is_sent() -> None:
    allowed = anthropic.MAX_CHARS["image"] // 4 * 4
    image = {"type": "image", "media_type": "image/png", "data": "A" * allowed}
    (turn,) = (await test_anthropic.sent_for([{"role": "user", "content": [image]}]))["messages"]
    assert len(turn["content"][0]["source"]["data"]) == allowed
