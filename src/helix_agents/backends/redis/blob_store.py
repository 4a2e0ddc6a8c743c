"""RedisBlobStore: heads in one hash for each space, pieces as strings, all in the slot of the space.

Redis is memory, so blobs are limited to 8 MB. They outlive their session's own expiry, by a year without use, so that
no message refers to a blob that expired before it.
"""

from __future__ import annotations

import base64

from ...clock import Clock, system_clock
from ...codec import decode, to_struct
from ...stores.blobs.base import MEGABYTE, BlobStoreBase
from ...stores.blobs.contract import BlobInfo
from .client.connection import Client, Command
from .client.servers import Servers
from .keys import BlobKeys, checked_prefix
from .program.runner import Done, Refused, Runner
from .program.vocabulary import ABSENT, Program
from .sessions.session_hash import as_fields, as_texts, struct_text

PIECE_BYTES = 512 * 1024
YEAR_SECONDS = 365 * 24 * 60 * 60


class RedisBlobStore(BlobStoreBase):
    """BlobStore on Redis or Valkey, one server or a cluster. The client stays the caller's."""

    def __init__(
        self, redis: Client, *, prefix: str = "agent", max_bytes: int = 8 * MEGABYTE, clock: Clock = system_clock
    ) -> None:
        super().__init__(max_bytes=max_bytes, piece_bytes=PIECE_BYTES, clock=clock)
        self._keys = BlobKeys(checked_prefix(prefix))
        self._servers = Servers(redis)
        self._runner = Runner(self._servers)

    async def close(self) -> None:
        """Close the connections that this store opened itself; the client stays open."""
        await self._servers.close()

    async def _write_pieces(self, space: str, digest: str, first: int, pieces: list[bytes]) -> None:
        key, written = self._keys.pieces(space, digest), self._keys.written(space)
        commands: list[Command] = [("SADD", written, digest), ("EXPIRE", written, YEAR_SECONDS)]
        commands += (
            ("HSET", key, str(number), base64.b64encode(piece).decode()) for number, piece in enumerate(pieces, first)
        )
        await self._servers.run(key, [*commands, ("EXPIRE", key, YEAR_SECONDS)])

    async def _finish(self, space: str, info: BlobInfo, pieces: int) -> bool:
        heads = self._keys.heads(space)
        program = Program(heads)
        program.repeatable = True
        program.require("pieces", pieces, "HLEN", self._keys.pieces(space, info.digest))
        program.do("HSETNX", heads, info.digest, struct_text(info))
        program.do("EXPIRE", heads, YEAR_SECONDS)
        return not isinstance(await self._runner.run(program), Refused)

    async def _read_pieces(self, space: str, digest: str, first: int, count: int) -> list[bytes]:
        key = self._keys.pieces(space, digest)
        found = await self._servers.one(key, "HMGET", key, *map(str, range(first, first + count)))
        return [base64.b64decode(each) for each in found if each is not None]

    async def _heads(self, space: str, digests: list[str]) -> list[BlobInfo]:
        key = self._keys.heads(space)
        return [
            _info(each.decode()) for each in await self._servers.one(key, "HMGET", key, *digests) if each is not None
        ]

    async def _page(self, space: str, after: str, limit: int) -> list[BlobInfo]:
        key = self._keys.heads(space)
        heads = as_fields(await self._servers.one(key, "HGETALL", key))
        return [_info(heads[digest]) for digest in sorted(heads) if digest > after][:limit]

    async def _renew(self, space: str, info: BlobInfo) -> bool:
        program, heads = Program(self._keys.heads(space)), self._keys.heads(space)
        program.require("head", 1, "HEXISTS", heads, info.digest)
        program.do("HSET", heads, info.digest, struct_text(info))
        return not isinstance(await self._runner.run(program), Refused)

    async def _remove(self, space: str, digests: list[str] | None, stored_until: int | None) -> int:
        heads, written = self._keys.heads(space), self._keys.written(space)
        while True:
            if digests is None:
                known, texts = await self._servers.run(heads, [("SMEMBERS", written), ("HGETALL", heads)])
                doomed, found = as_texts(known), as_fields(texts)
            else:
                texts = await self._servers.one(heads, "HMGET", heads, *digests)
                doomed = digests
                found = {each: text.decode() for each, text in zip(digests, texts, strict=True) if text is not None}
            if stored_until is not None:
                late = {each for each, text in found.items() if _info(text).stored_at > stored_until}
                doomed = [each for each in doomed if each not in late]
            if not doomed:
                return 0
            program = Program(heads)
            for each in doomed:
                program.require("head", found.get(each, ABSENT), "HGET", heads, each)
            program.answer("HDEL", heads, *doomed)
            program.do("SREM", written, *doomed)
            for each in doomed:
                program.do("DEL", self._keys.pieces(space, each))
            answer = await self._runner.run(program)
            if isinstance(answer, Done):
                return int(answer.answers[0])


def _info(text: str) -> BlobInfo:
    info: BlobInfo = to_struct(BlobInfo, decode(text))
    return info
