"""Checks of the BlobStore contract (B1 to B4): one rule each, against any backend."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator

from ...errors import InvalidArgument
from ...stores.blobs.contract import BlobStore
from ..expect import expect, expect_same, raises
from ..harness import Harness
from ..registry import Registry

BLOB_STORE: Registry[Harness] = Registry()
"""Every check of the BlobStore contract."""

check = BLOB_STORE.check

LARGE = 2_000_000
"""More than one piece on every backend."""


def _bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(f"{seed}-{size}").randbytes(size)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def _parts(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


# -- B1 content-addressed


@check("B1", "bytes come back exactly, whatever their length, also after a restart")
async def bytes_come_back(harness: Harness) -> None:
    store = await harness.open_blobs()
    samples = [b"", b"\x00\xff" * 3, _bytes(192 * 1024), _bytes(512 * 1024 + 1), _bytes(LARGE)]
    for data in samples:
        ref = await store.put("a", data, media_type="image/png")
        expect_same((ref.digest, ref.size, ref.media_type), (_digest(data), len(data), "image/png"), "the reference")
    again = await harness.open_blobs()
    for data in samples:
        expect(await again.get("a", _digest(data)) == data, f"{len(data)} bytes came back differently")


@check("B1", "the same bytes are stored once, and the first media type stays")
async def same_bytes_once(harness: Harness) -> None:
    store = await harness.open_blobs()
    first = await store.put("a", b"one", media_type="text/plain")
    second = await store.put("a", b"one", media_type="text/html")
    expect_same(second, first, "the second reference")
    expect_same(len((await store.list("a")).items), 1, "blobs")


@check("B1", "bytes may arrive in parts")
async def bytes_in_parts(harness: Harness) -> None:
    store = await harness.open_blobs()
    data = _bytes(700_000)
    ref = await store.put("a", _parts(data, 1_234))
    expect_same(ref.digest, _digest(data), "the digest")
    expect(await store.get("a", ref.digest) == data, "bytes that arrived in parts came back differently")


@check("B1", "many tasks that put the same bytes all get the same reference", kind="tasks")
async def many_put_the_same(harness: Harness) -> None:
    stores = [await harness.open_blobs() for _ in range(4)]
    for size in (1, LARGE):
        data = _bytes(size, harness.options.seed)
        refs = await asyncio.gather(*(store.put("a", data) for store in stores for _ in range(8)))
        expect(len(set(refs)) == 1, "the references differ")
        expect(await stores[0].get("a", refs[0].digest) == data, "the bytes differ")
    expect_same(len((await stores[0].list("a")).items), 2, "blobs")


@check("B1", "any range can be read", kind="random")
async def ranges(harness: Harness) -> None:
    store = await harness.open_blobs()
    data, chosen = _bytes(LARGE), random.Random(harness.options.seed)
    ref = await store.put("a", data)
    cases = [(0, 0), (0, 1), (LARGE - 1, 5), (LARGE, 1), (LARGE + 7, None), (3, None)]
    cases += [(chosen.randrange(LARGE), chosen.randrange(1_000_000)) for _ in range(8)]
    for offset, limit in cases:
        expected = data[offset:] if limit is None else data[offset : offset + limit]
        found = await store.get("a", ref.digest, offset=offset, limit=limit)
        expect(found == expected, f"offset {offset}, limit {limit}: other bytes")


# -- B2 whole or absent


@check("B2", "a blob whose bytes stop arriving is not stored")
async def cut_off(harness: Harness) -> None:
    store = await harness.open_blobs()

    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * 600_000
        raise ConnectionError("the client went away")

    with raises(ConnectionError, "a put whose bytes stop arriving"):
        await store.put("a", breaking())
    expect_same((await store.list("a")).items, [], "blobs")


@check("B2", "a cancelled put leaves the whole blob or none", kind="tasks")
async def cancelled(harness: Harness) -> None:
    store = await harness.open_blobs()
    for turn in range(8):
        data = _bytes(LARGE, turn)
        putting = asyncio.ensure_future(store.put("a", data))
        for _ in range(turn * 3):
            await asyncio.sleep(0)
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        found = await (await harness.open_blobs()).get("a", _digest(data))
        expect(found is None or found == data, "part of a blob is visible")
        expect((await store.put("a", data)).size == LARGE, "the blob cannot be put again")


@check("B2", "a blob that is too large is rejected, in one piece and in parts, and leaves nothing")
async def too_large(harness: Harness) -> None:
    store = await harness.open_blobs(max_bytes=1_000)
    with raises(InvalidArgument, "bad input"):
        await store.put("a", b"x" * 1_001)
    with raises(InvalidArgument, "bad input"):
        await store.put("a", _parts(b"x" * 5_000, 100))
    expect_same((await store.list("a")).items, [], "blobs")
    expect_same((await store.put("a", b"x" * 1_000)).size, 1_000, "the largest one")


@check("B2", "a put that a deletion overtakes ends whole or absent", kind="tasks")
async def put_while_deleting(harness: Harness) -> None:
    store, other = await harness.open_blobs(), await harness.open_blobs()
    data = _bytes(LARGE)
    for _ in range(4):
        await asyncio.gather(store.put("a", data), other.delete("a"), return_exceptions=True)
        found = await store.get("a", _digest(data))
        expect(found is None or found == data, "a blob has lost a part of its bytes")


# -- B3 links


@check("B3", "a linked blob survives the deletion of its origin; missing ones are named")
async def links_survive(harness: Harness) -> None:
    store = await harness.open_blobs()
    data = _bytes(LARGE)
    ref = await store.put("a", data, media_type="image/png")
    missing = _digest(b"never stored")
    expect_same(await store.link("a", "b", [ref.digest, missing]), [missing], "what is missing")
    expect_same(await store.link("a", "b", [ref.digest]), [], "what is missing the second time")
    await store.delete("a")
    expect(await store.get("b", ref.digest) == data, "the linked blob is gone")
    expect_same((await store.stat("b", [ref.digest]))[ref.digest].media_type, "image/png", "its media type")
    expect_same(
        await store.link("a", "b", [ref.digest]), [], "missing links to a blob that only another space still has"
    )


# -- B4 deletion and isolation


@check("B4", "a space is deleted as a whole, and only that space")
async def spaces_are_deleted(harness: Harness) -> None:
    store = await harness.open_blobs()
    for space in ("a", "a/b", "b"):
        await store.put(space, b"shared")
        await store.put(space, space.encode())
    expect_same(await store.delete("a"), 2, "deleted")
    expect_same(await store.delete("a"), 0, "deleted again")
    expect_same((await store.list("a")).items, [], "blobs of the deleted space")
    expect(await store.get("a", _digest(b"shared")) is None, "a deleted blob can be read")
    for space in ("a/b", "b"):
        expect_same(len((await store.list(space)).items), 2, f"blobs of {space}")
    expect_same(await store.delete("b", [_digest(b"shared"), _digest(b"no")]), 1, "deleted by digest")
    expect(await store.get("b", _digest(b"b")) == b"b", "another blob was deleted as well")


@check("B4", "deleting what was stored up to a time keeps what was stored or linked again since")
async def later_blobs_stay(harness: Harness) -> None:
    store = await harness.open_blobs()
    for data in (b"old", b"again", b"linked"):
        await store.put("a", data)
    await store.put("b", b"linked")
    stored = (await store.stat("a", [_digest(b"linked")]))[_digest(b"linked")].stored_at
    while (until := (await store.stat("b", [_digest(b"linked")]))[_digest(b"linked")].stored_at) <= stored:
        await store.put("b", b"linked")  # the next millisecond
    for data in (b"again", b"new"):
        await store.put("a", data)
    while (await store.stat("a", [_digest(b"again")]))[_digest(b"again")].stored_at <= until:
        for data in (b"again", b"new"):
            await store.put("a", data)
    expect_same(await store.link("b", "a", [_digest(b"linked")]), [], "missing links")
    expect_same(await store.delete("a", stored_until=until), 1, "deleted")
    left = sorted(each.digest for each in (await store.list("a")).items)
    expect_same(left, sorted(map(_digest, (b"again", b"new", b"linked"))), "what is left")
    for data in (b"again", b"new", b"linked"):
        expect(await store.get("a", _digest(data)) == data, f"{data!r} has lost its bytes")
    expect_same(await store.delete("a", [_digest(b"new")], stored_until=until), 0, "deleted by digest")


@check("B4", "listing goes through all blobs by digest, page by page")
async def listing(harness: Harness) -> None:
    store = await harness.open_blobs()
    expected = sorted([(await store.put("a", str(number).encode())).digest for number in range(25)])
    found: list[str] = []
    cursor: str | None = None
    for _ in range(10):
        page = await store.list("a", cursor=cursor, limit=10)
        found += [each.digest for each in page.items]
        cursor = page.next_cursor
        if not page.has_more:
            break
    expect_same(found, expected, "all digests")
    stated = await store.stat("a", [*expected[:3], _digest(b"no")])
    expect_same(sorted(stated), expected[:3], "what stat returns")


@check("B4", "bad input is rejected before anything is written")
async def bad_input(harness: Harness) -> None:
    store = await harness.open_blobs()
    await _refuses(store, "", b"x", "image/png")
    await _refuses(store, "a", "text", "image/png")
    await _refuses(store, "a", b"x", "image")
    await _refuses(store, "a", b"x", "text/html\r\nx: y")
    for digest in ("sha256:12", "md5:" + "0" * 64, "sha256:" + "G" * 64, "../../etc/passwd"):
        with raises(InvalidArgument, "bad input"):
            await store.get("a", digest)
    with raises(InvalidArgument, "bad input"):
        await store.get("a", _digest(b"x"), offset=-1)
    with raises(InvalidArgument, "bad input"):
        await store.list("a", limit=0)
    expect_same((await store.list("a")).items, [], "blobs")


async def _refuses(store: BlobStore, space: str, data: object, media_type: str) -> None:
    with raises(InvalidArgument, "bad input"):
        await store.put(space, data, media_type=media_type)  # type: ignore[arg-type]
