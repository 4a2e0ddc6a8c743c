"""Checks of the MemoryStore contract (M1 to M6): one rule each, against any backend."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import InvalidArgument, NotSerializable
from ...stores.memory.contract import Memory, MemoryStore
from ..expect import expect, expect_same, raises
from ..harness import Harness
from ..registry import Registry
from ..tools.sample import AWKWARD_TEXTS, AWKWARD_VALUES

MEMORY_STORE: Registry[Harness] = Registry()
"""Every check of the MemoryStore contract."""

check = MEMORY_STORE.check


async def _fill(store: MemoryStore, entity_id: str, contents: dict[str, str], source: str = "default") -> None:
    for memory_id, content in contents.items():
        await store.save(Memory(id=memory_id, entity_id=entity_id, content=content, source=source))


async def _found(store: MemoryStore, entity_id: str, query: str, **options: Any) -> list[str]:
    return [memory.id for memory in await store.search(entity_id, query, **options)]


# -- M1 save


@check("M1", "a saved memory has every field, also when another store reads it")
async def saved_is_there(harness: Harness) -> None:
    store = await harness.open_memory()
    given = Memory(
        id="1", entity_id="e", source="chat", content="likes tea", metadata={"n": [1, {"a": None}]}, embedding=(0.1, -2)
    )
    kept = await store.save(given)
    expect(kept.created_at > 0 and kept.updated_at >= kept.created_at, f"no times: {kept}")
    expected = msgspec.structs.replace(
        given, embedding=(0.1, -2.0), created_at=kept.created_at, updated_at=kept.updated_at
    )
    expect_same(kept, expected, "the returned memory")
    expect_same(await (await harness.open_memory()).get("e", "1"), expected, "the memory")


@check("M1", "a memory that is saved without an id gets one")
async def missing_id_is_made(harness: Harness) -> None:
    store = await harness.open_memory()
    first, second = [await store.save(Memory(entity_id="e", content="tea")) for _ in range(2)]
    expect(first.id and second.id and first.id != second.id, f"ids {first.id!r} and {second.id!r}")
    expect_same(await store.get("e", first.id), first, "the memory")


@check("M1", "saving again replaces content, source and metadata and keeps created_at")
async def saving_again_replaces(harness: Harness) -> None:
    store = await harness.open_memory()
    first = await store.save(
        Memory(id="1", entity_id="e", content="likes tea", source="a", metadata={"x": 1}, created_at=77)
    )
    expect_same(first.created_at, 77, "a given created_at")
    again = await store.save(Memory(id="1", entity_id="e", content="likes coffee", source="b"))
    expect_same((again.created_at, again.updated_at >= first.updated_at), (77, True), "times")
    expect_same(await store.get("e", "1"), again, "the memory")
    expect_same((again.metadata, again.source), ({}, "b"), "the rest")
    expect_same((await _found(store, "e", "tea"), await _found(store, "e", "coffee")), ([], ["1"]), "found")
    expect_same((await store.list_memories("e")).total, 1, "memories")


@check("M1", "tasks that save concurrently lose nothing", kind="tasks")
async def racing_saves(harness: Harness) -> None:
    stores = [await harness.open_memory() for _ in range(harness.options.tasks)]

    async def save(number: int, store: MemoryStore) -> None:
        await store.save(Memory(id=f"own-{number}", entity_id="e", content=f"word own{number}"))
        await store.save(Memory(id="shared", entity_id="e", content=f"word shared{number}"))

    await asyncio.gather(*(save(number, store) for number, store in enumerate(stores)))
    expect_same((await stores[0].list_memories("e")).total, len(stores) + 1, "memories")
    expect_same(len(await stores[0].search("e", "word", limit=200)), len(stores) + 1, "found")
    expect_same(len(await stores[0].search("e", "shared")), 1, "contents of the shared one")


# -- M2 exact


@check("M2", "unusual text and values are read back unchanged")
async def awkward_values(harness: Harness) -> None:
    store = await harness.open_memory()
    for number, text in enumerate(AWKWARD_TEXTS):
        given = Memory(id=str(number), entity_id="e", content=text, metadata={text: text, "all": list(AWKWARD_VALUES)})
        await store.save(given)
        found = await store.get("e", str(number))
        assert found is not None
        expect_same((found.content, found.metadata), (given.content, given.metadata), f"text {text!r}")


@check("M2", "changing the metadata object after a save does not change what is stored")
async def metadata_is_detached(harness: Harness) -> None:
    store = await harness.open_memory()
    metadata: dict[str, Any] = {"list": [1]}
    await store.save(Memory(id="1", entity_id="e", content="x", metadata=metadata))
    metadata["list"].append(2)
    for _ in range(2):
        found = await store.get("e", "1")
        assert found is not None
        expect_same(found.metadata, {"list": [1]}, "metadata")
        found.metadata["list"].append(3)


@check("M2", "bad memories are rejected and nothing is stored")
async def bad_memories(harness: Harness) -> None:
    store = await harness.open_memory()
    good: dict[str, Any] = {"id": "1", "entity_id": "e", "content": "x"}
    bad: list[dict[str, Any]] = [
        {"id": "a\n"},
        {"entity_id": ""},
        {"entity_id": "{x}"},
        {"source": ""},
        {"content": 5},
        {"content": "x" * 100_001},
        {"metadata": [1]},
        {"embedding": ()},
        {"embedding": (float("nan"),)},
        {"created_at": -1},
    ]
    for wrong in bad:
        with raises(InvalidArgument, f"save with {str(wrong)[:60]}"):
            await store.save(Memory(**{**good, **wrong}))
    with raises(NotSerializable, "metadata that is not JSON") as caught:
        await store.save(Memory(**good, metadata={"a": {1, 2}}))
    expect("/a" in str(caught.error), f"the error does not name the path: {caught.error}")
    expect_same((await store.list_entities()).total, 0, "entities")


# -- M3 isolation


@check("M3", "no call returns memories of another entity")
async def entities_are_apart(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "a", {"1": "tea with milk"})
    await _fill(store, "ab", {"1": "tea with lemon", "2": "tea"})
    one = await store.get("a", "1")
    expect_same(one and one.content, "tea with milk", "the memory of a")
    expect(await store.get("a", "2") is None, "a memory of another entity was returned")
    expect_same(await _found(store, "a", "tea"), ["1"], "found for a")
    expect_same(await _found(store, "a", "lemon"), [], "found for a")
    expect_same(await _found(store, "nobody", ""), [], "found for an unknown entity")
    expect_same(await store.delete("a", "2"), False, "deleting another entity's memory")
    expect_same((await store.list_memories("ab")).total, 2, "memories of ab")


@check("M3", "the source filter applies to every result")
async def source_narrows(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "e", {"1": "green tea"}, source="chat")
    await _fill(store, "e", {"2": "black tea"}, source="mail")
    expect_same(await _found(store, "e", "tea", source="mail"), ["2"], "found")
    expect_same(await _found(store, "e", "", source="chat"), ["1"], "newest")
    expect_same([each.id for each in (await store.list_memories("e", source="chat")).items], ["1"], "listed")
    expect_same((await store.list_entities(source="mail")).total, 1, "entities")


# -- M4 search


@check("M4", "every word of the query must occur, as a word or as the prefix of a word")
async def all_words_must_occur(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "e", {"1": "The user prefers dark roast coffee.", "2": "User prefers green tea"})
    cases = {
        "coffee": ["1"],
        "user prefers": ["1", "2"],
        "prefers tea": ["2"],
        "coffee tea": [],
        "pref gre": ["2"],
        "ref": [],
        "coffees": [],
        "c": ["1"],
        "tea tea tea": ["2"],
    }
    for query, expected in cases.items():
        expect_same(sorted(await _found(store, "e", query)), expected, f"{query!r}")


@check("M4", "search ignores case, accents and punctuation, and finds other scripts")
async def text_is_normalised(harness: Harness) -> None:
    store = await harness.open_memory()
    contents = {
        "accent": "Zoë lives in Århus",
        "signs": "snake_case, e-mail: a.b@example.com",
        "cyrillic": "Любит Кофе",
        "cjk": "私は東京に住んでいます",
        "sharp": "Straße",
        "hindi": "हिन्दी भाषा",
    }
    await _fill(store, "e", contents)
    cases = {
        "ZOE": "accent",
        "arhus": "accent",
        "case": "signs",
        "E-MAIL": "signs",
        "example.com": "signs",
        "кофе": "cyrillic",
        "東京": "cjk",
        "STRASSE": "sharp",
        "हिन्दी": "hindi",
    }
    for query, expected in cases.items():
        expect_same(await _found(store, "e", query), [expected], f"{query!r}")


HOSTILE = (
    '"',
    '""',
    "'",
    "*",
    "a*",
    "^tea",
    "tea AND",
    "AND OR NOT",
    "NEAR(tea coffee, 2)",
    "NOT tea",
    "-tea",
    "+tea",
    "content:tea",
    "(tea",
    "tea)",
    "{a b}: c",
    "tea & !coffee | x <-> y:*",
    "%",
    "_",
    "\\",
    "; DROP TABLE x; --",
    "?1 $1 :a @b",
    "@field:{tag} ~x =>{$weight: 2}",
    "a" * 10_000,
    "word " * 5_000,
    " ".join(f"w{n}" for n in range(2_000)),
)


@check("M4", "no query text is an error; operators are plain words")
async def hostile_queries(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "e", {"1": "green tea", "2": "tea or not", "3": "coffee"})
    for query in (*HOSTILE, *AWKWARD_TEXTS):
        await store.search("e", query)
    for query, expected in {"tea OR coffee": [], "tea NOT or": ["2"], '"green" (tea*': ["1"]}.items():
        expect_same(await _found(store, "e", query), expected, f"{query!r}")


@check("M4", "a query without words finds the newest memories")
async def empty_query_finds_the_newest(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "e", {str(number): f"number {number}" for number in range(5)})
    newest = [each.id for each in (await store.list_memories("e")).items]
    for query in ("", "  ", '"*"', "\U0001f600"):
        expect_same(await _found(store, "e", query, limit=3), newest[:3], f"{query!r}")


@check("M4", "more occurrences, whole words and shorter texts come first")
async def best_first(harness: Harness) -> None:
    store = await harness.open_memory()
    # Saved worst first and best first, so that age cannot explain the order.
    for entity_id, order in (("up", ["1", "2", "3", "4"]), ("down", ["4", "3", "2", "1"])):
        contents = {
            "1": "tea, tea and more tea",
            "2": "some tea at noon",
            "3": "some teapot at noon",
            "4": "at noon there is a teapot on the table beside many other things that nobody needs",
        }
        await _fill(store, entity_id, {each: contents[each] for each in order})
        expect_same(await _found(store, entity_id, "tea"), ["1", "2", "3", "4"], f"the order, saved {entity_id}")
        expect_same(await _found(store, entity_id, "tea", limit=2), ["1", "2"], "the best two")


@check("M4", "random memories and queries agree with a plain scan", kind="random")
async def random_search(harness: Harness) -> None:
    seed = harness.options.seed
    rng = random.Random(seed)
    store = await harness.open_memory()
    kept: dict[tuple[str, str], str] = {}
    vocabulary = ["tea", "team", "te", "x", "x1", "coffee", "cof", "noon"]
    for _ in range(harness.options.steps):
        key = (rng.choice("ab"), str(rng.randrange(30)))
        action = rng.random()
        if action < 0.5:
            kept[key] = ", ".join(rng.choices(vocabulary, k=rng.randrange(5)))
            await store.save(Memory(entity_id=key[0], id=key[1], content=kept[key]))
        elif action < 0.65:
            gone = kept.pop(key, None) is not None
            expect_same(await store.delete(*key), gone, f"seed {seed}: whether {key} existed")
        else:
            wanted = rng.choices(vocabulary, k=rng.randrange(1, 3))
            expected = [
                memory_id
                for (entity_id, memory_id), content in kept.items()
                if entity_id == key[0] and all(re.search(rf"\b{word}", content) for word in wanted)
            ]
            found = await _found(store, key[0], " ".join(wanted), limit=200)
            expect_same(sorted(found), sorted(expected), f"seed {seed}: {wanted} in {key[0]}")


class _Meanings:
    """An embedder that knows three topics."""

    TOPICS = (("tea", "coffee", "drink"), ("dog", "cat", "pet"), ("rain", "sun", "weather"))

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(any(word in text for word in topic)) for topic in self.TOPICS] for text in texts]


@check("M4", "with an embedder, search finds the same meaning in other words, and exact words first")
async def search_by_meaning(harness: Harness) -> None:
    store = await harness.open_memory(embedder=_Meanings())
    await _fill(store, "e", {"1": "has coffee at noon", "2": "walks a dog", "3": "likes every drink"})
    expect_same(sorted(await _found(store, "e", "tea")), ["1", "3"], "tea means a drink")
    expect_same(await _found(store, "e", "drink"), ["3", "1"], "the word itself comes first")
    expect_same(await _found(store, "e", "pet", limit=1), ["2"], "pet means a dog")
    edited = await store.get("e", "2")
    assert edited is not None
    await store.save(msgspec.structs.replace(edited, content="waits for the sun"))
    expect_same((await _found(store, "e", "pet"), await _found(store, "e", "weather")), ([], ["2"]), "after an edit")


# -- M5 listing


@check("M5", "entities are listed with exact counts, in order, in pages")
async def entities_are_listed(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "b", {"1": "x", "2": "x"}, source="mail")
    await _fill(store, "b", {"3": "x"}, source="chat")
    await _fill(store, "a", {"1": "x"}, source="chat")
    page = await store.list_entities()
    got = [(each.entity_id, each.source, each.memory_count) for each in page.items]
    expect_same(got, [("a", "chat", 1), ("b", "chat", 1), ("b", "mail", 2)], "pairs")
    expect(all(each.updated_at > 0 for each in page.items), "an entity has no time")
    expect_same((page.total, page.has_more), (3, False), "the whole page")
    first = await store.list_entities(limit=2)
    expect_same((len(first.items), first.total, first.has_more), (2, 3, True), "the first page")
    rest = await store.list_entities(limit=2, offset=2, count=False)
    got = [(each.entity_id, each.source, each.memory_count) for each in rest.items]
    expect_same((got, rest.total, rest.has_more), ([("b", "mail", 2)], None, False), "the rest, uncounted")
    only = await store.list_entities(entity_id="b", source="mail")
    expect_same(([each.memory_count for each in only.items], only.total), ([2], 1), "one entity")
    expect_same((await store.list_entities(entity_id="b")).total, 2, "the sources of b")


@check("M5", "memories are listed newest first, in pages")
async def memories_are_listed(harness: Harness) -> None:
    store = await harness.open_memory()
    kept = [await store.save(Memory(id=str(n), entity_id="e", content="x")) for n in range(5)]
    kept.sort(key=lambda each: (each.updated_at, each.id), reverse=True)
    first = await store.list_memories("e", limit=3)
    rest = await store.list_memories("e", limit=3, offset=3)
    expect_same([*first.items, *rest.items], kept, "all pages")
    expect_same((first.total, first.has_more, rest.has_more), (5, True, False), "the pages")


@check("M5", "bad arguments are rejected")
async def bad_arguments(harness: Harness) -> None:
    store = await harness.open_memory()
    bad: list[dict[str, Any]] = [
        {"limit": 0},
        {"limit": 201},
        {"offset": -1},
        {"offset": 2**70},
        {"source": ""},
        {"entity_id": "a\x00"},
    ]
    for arguments in bad:
        with raises(InvalidArgument, f"list_entities with {arguments}"):
            await store.list_entities(**arguments)
    with raises(InvalidArgument, "search with limit 0"):
        await store.search("e", "x", limit=0)
    with raises(InvalidArgument, "search without an entity"):
        await store.search("", "x")
    with raises(InvalidArgument, "a query that is not a string"):
        await store.search("e", None)  # type: ignore[arg-type]  # the point of the check


# -- M6 delete


@check("M6", "a deleted memory is neither found nor counted")
async def deleted_is_gone(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "e", {"1": "tea", "2": "tea"})
    expect_same((await store.delete("e", "1"), await store.delete("e", "1")), (True, False), "answers")
    expect(await store.get("e", "1") is None, "the memory still exists")
    expect_same((await _found(store, "e", "tea"), await _found(store, "e", "")), (["2"], ["2"]), "found")
    again = await store.save(Memory(id="1", entity_id="e", content="coffee"))
    expect_same((await _found(store, "e", "tea"), await _found(store, "e", "coffee")), (["2"], [again.id]), "anew")


@check("M6", "an entity can be forgotten, as a whole or by source")
async def entity_is_forgotten(harness: Harness) -> None:
    store = await harness.open_memory()
    await _fill(store, "e", {"1": "tea", "2": "tea"}, source="chat")
    await _fill(store, "e", {"3": "tea"}, source="mail")
    await _fill(store, "other", {"1": "tea"})
    expect_same(await store.delete_entity("e", source="chat"), 2, "removed of chat")
    expect_same(await _found(store, "e", "tea"), ["3"], "left")
    expect_same((await store.delete_entity("e"), await store.delete_entity("e")), (1, 0), "removed of all")
    expect_same([each.entity_id for each in (await store.list_entities()).items], ["other"], "entities")
