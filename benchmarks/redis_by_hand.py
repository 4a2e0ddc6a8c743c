"""The baseline for Redis: the least that a careful programmer would write for the session workload, and nothing more.

One script a step: it checks the version and writes session, messages, counter, item and checkpoint, and it keeps the
four keys alive. No validation, no staging, no history of custom state, no listing.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.workload import Step, now_ms

SCRIPT = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return redis.error_reply('VERSION') end
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('HSET', KEYS[1], 'step_count', ARGV[2], 'updated_at', ARGV[3])
local counter = redis.call('HINCRBY', KEYS[1], 'counter', 1)
local messages = redis.call('RPUSH', KEYS[2], unpack(ARGV, 7))
redis.call('RPUSH', KEYS[3], ARGV[4])
redis.call('RPUSH', KEYS[4], ARGV[6] .. '|' .. ARGV[1] .. '|' .. messages .. '|' .. counter)
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[5]) end
return messages
"""


class RedisByHand:
    """One session on one client."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name
        self.keys = [f"{name}:{part}" for part in ("session", "messages", "items", "checkpoints")]
        self.digest = ""

    async def create(self) -> RedisByHand:
        await self.client.hset(self.keys[0], mapping={"version": 1, "counter": 0, "agent_type": "benchmark"})
        self.digest = await self.client.script_load(SCRIPT)
        return self

    async def commit(self, step: Step) -> None:
        now = now_ms()
        checkpoint = f"cp-{self.name}-{step.number}-{now}"
        arguments: list[Any] = [step.number, step.number, now, json.dumps(step.item), 604_800, checkpoint]
        messages = [json.dumps(message) for message in step.messages]
        await self.client.evalsha(self.digest, 4, *self.keys, *arguments, *messages)


SHAPE_SCRIPT = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[1] then return redis.error_reply('VERSION') end
redis.call('HSET', KEYS[1], 'version', ARGV[1] + 1, 'step_count', ARGV[2], 'updated_at', ARGV[3])
local cells, items = 8 + ARGV[6], 8 + ARGV[6] + ARGV[7]
if cells > 8 then redis.call('HSET', KEYS[2], unpack(ARGV, 8, cells - 1)) end
if items > cells then redis.call('RPUSH', KEYS[3], unpack(ARGV, cells, items - 1)) end
local messages = redis.call('RPUSH', KEYS[4], unpack(ARGV, items))
redis.call('RPUSH', KEYS[5], ARGV[5] .. '|' .. ARGV[1] .. '|' .. messages)
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[4]) end
return messages
"""


class RedisShapeByHand:
    """One session whose steps write values, members and items: one script a step, whatever they wrote."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name
        self.keys = [f"{name}:{part}" for part in ("session", "state", "items", "messages", "checkpoints")]
        self.digest = ""

    async def create(self) -> RedisShapeByHand:
        await self.client.hset(self.keys[0], mapping={"version": 1, "agent_type": "benchmark"})
        self.digest = await self.client.script_load(SHAPE_SCRIPT)
        return self

    async def commit(self, step: Step, writes: Any, version: int) -> None:
        now = now_ms()
        cells = [word for key, value in writes.values.items() for word in (key, json.dumps(value))]
        for (key, member), value in writes.members.items():
            cells += (f"{key}.{member}", json.dumps(value))
        items = [json.dumps(item) for item in writes.items]
        messages = [json.dumps(message) for message in step.messages]
        checkpoint = f"cp-{self.name}-{step.number}-{now}"
        words: list[Any] = [version, step.number, now, 604_800, checkpoint, len(cells), len(items)]
        await self.client.evalsha(self.digest, len(self.keys), *self.keys, *words, *cells, *items, *messages)
