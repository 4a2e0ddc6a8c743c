"""Reads what is in the backend, without the stores, and compares it with what was acknowledged.

- nothing acknowledged is lost: the session, its turns, its messages and its state are there;
- nothing is duplicated: messages, turns, tool calls and commits are there once;
- sequences are dense: every gap of a stream is followed by the marker that explains it;
- a branch that was left is there whole, once, and beside the conversation;
- usage has every tool call of a finished turn, and none twice within a run;
- nothing is orphaned: no row or key without its session, no open run, no staged call.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple

import asyncpg
import redis

from helix_agents import open_stores
from tests.servers.process import HOST
from tests.soak.clients import Session
from tests.soak.targets import Target
from tests.soak.workload import STEPS, expected_roles, expected_state

MARKERS = ("stream_rewound", "stream_resync")


class Raw(NamedTuple):
    """What a backend holds for one session."""

    messages: list[dict[str, Any]]
    runs: list[str]
    """Their statuses. Of those that belong to one turn, only the last is completed."""
    chunks: list[tuple[int, dict[str, Any]]]
    staged: int
    shelved: list[dict[str, Any]]
    """The messages of the branch that was left."""
    tools: list[tuple[str, int, str]]
    """The recorded tool calls: run, step, tool."""


async def check(target: Target, sessions: Iterable[Session]) -> list[str]:
    """Return every violation."""
    names = [session.session_id for session in sessions]
    raw, orphans = await read_raw(target, names)
    found = [f"orphan: {each}" for each in orphans]
    async with open_stores(target.url) as stores:
        for session in sessions:
            state = await stores.state.load_state(session.session_id)
            known = None if state is None else (state.status, state.custom_state)
            for problem in problems_of(session, known, raw[session.session_id]):
                found.append(f"{session.session_id}: {problem}")
    return found


def problems_of(session: Session, state: tuple[str, Any] | None, raw: Raw) -> list[str]:
    """Return what is wrong with one session."""
    if state is None:
        return ["lost"] if session.acknowledged else []
    found: list[str] = []
    if state != ("completed", wanted := expected_state(session.asks)):
        found.append(f"is {state}, not {('completed', wanted)}")
    roles = [message["role"] for message in raw.messages]
    if roles != expected_roles(session.asks):
        found.append(f"has the messages {roles}")
    if [message["role"] for message in raw.shelved] != session.shelved:
        found.append(f"has put aside the messages {[message['role'] for message in raw.shelved]}")
    turns = len(session.asks) + bool(session.shelved)
    if raw.runs.count("completed") != turns:
        found.append(f"has the runs {raw.runs} for {turns} turns")
    if "running" in raw.runs:
        found.append(f"has a run without an end: {raw.runs}")
    if raw.staged:
        found.append(f"{raw.staged} staged calls were left")
    return found + usage_problems(session, raw.tools) + stream_problems(session, raw.chunks)


def usage_problems(session: Session, tools: list[tuple[str, int, str]]) -> list[str]:
    """Return what is wrong with the recorded tool calls. What ran twice, in two attempts, was paid for twice."""
    turns = len(session.asks) + bool(session.shelved)
    counts = Counter(name for _, _, name in tools)
    lost = [name for name in ("work", "count") if counts[name] < STEPS * turns]
    doubled = [call for call, times in Counter(tools).items() if times > 1]
    found = [f"usage has {counts[name]} calls of {name} for {turns} turns" for name in lost]
    return found + [f"usage has {name} of step {step} twice in {run}" for run, step, name in doubled]


def stream_problems(session: Session, chunks: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """Return what is wrong with the stream, and with what a reader got of it."""
    found: list[str] = []
    for (before, _), (after, chunk) in pairwise(chunks):
        if after != before + 1 and chunk["type"] not in MARKERS:
            found.append(f"the stream jumps from {before} to {after} without a marker")
    commits = [chunk["step_count"] for _, chunk in chunks if chunk["type"] == "step_committed"]
    if commits != sorted(set(commits)):
        found.append(f"announced commits are {commits}")
    if session.read != sorted(set(session.read)):
        found.append("a reader got a chunk twice, or out of order")
    last = chunks[-1][0] if chunks else 0
    missed = {sequence for sequence, _ in chunks} - set(session.read)
    if session.read and session.read[-1] > last:
        found.append(f"a reader got {session.read[-1]}, beyond the last chunk {last}")
    if session.is_over and missed and max(session.read, default=0) > max(missed):
        found.append(f"a reader missed {sorted(missed)[:5]}")
    return found


async def read_raw(target: Target, names: list[str]) -> tuple[dict[str, Raw], list[str]]:
    """Return what the backend holds, and what belongs to no session."""
    if target.backend == "sqlite":
        return _read_sqlite(target.url.removeprefix("sqlite:"), names)
    if target.backend == "postgres":
        return await _read_postgres(target.url, names)
    return await asyncio.to_thread(_read_redis, target, names)  # the proxies of a cluster run in this loop


# -- SQL

MESSAGES = "SELECT message FROM __agents_messages WHERE session_id = {} ORDER BY sequence"
RUNS = "SELECT status FROM __agents_runs WHERE session_id = {} ORDER BY turn"
CHUNKS = "SELECT sequence, chunk FROM __agents_stream_chunks WHERE stream_id = {} ORDER BY sequence"
STAGED = "SELECT COUNT(*) FROM __agents_staging WHERE session_id = {}"
SHELVED = (
    "SELECT m.message FROM __agents_messages AS m JOIN __agents_branches AS b ON m.session_id = b.shelf "
    "WHERE b.session_id = {} ORDER BY m.session_id, m.sequence"
)
TOOLS = "SELECT run_id, step_count, name FROM __agents_usage WHERE session_id = {} AND kind = 'tool'"
QUERIES = (MESSAGES, RUNS, CHUNKS, STAGED, SHELVED, TOOLS)
ORPHANS = (
    "SELECT DISTINCT {column} FROM {table} WHERE {column} NOT IN (SELECT session_id FROM __agents_states) "
    "AND {column} NOT IN (SELECT shelf FROM __agents_branches)"
)
TABLES_OF_SESSIONS = {
    "session_id": (
        *("messages", "runs", "staging", "checkpoints", "custom_state", "past", "sub_session_refs", "usage"),
        "branches",
    ),
    "stream_id": ("streams", "stream_producers"),
}


def _orphan_queries() -> list[tuple[str, str]]:
    return [
        (f"__agents_{name}", ORPHANS.format(column=column, table=f"__agents_{name}"))
        for column, names in TABLES_OF_SESSIONS.items()
        for name in names
    ]


def _raw(messages: Any, runs: Any, chunks: Any, staged: Any, shelved: Any, tools: Any) -> Raw:
    return Raw(
        [json.loads(row[0]) for row in messages],
        [row[0] for row in runs],
        [(row[0], json.loads(row[1])) for row in chunks],
        staged[0][0],
        [json.loads(row[0]) for row in shelved],
        [(row[0], row[1], row[2]) for row in tools],
    )


def _is_orphan(name: str) -> bool:
    return not name.startswith("helix/")  # streams of the library itself


def _read_sqlite(path: str, names: list[str]) -> tuple[dict[str, Raw], list[str]]:
    with closing(sqlite3.connect(path)) as connection:

        def ask(query: str, name: str) -> list[Any]:
            return connection.execute(query.format("?"), (name,)).fetchall()

        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
        found = {name: _raw(*[ask(query, name) for query in QUERIES]) for name in names}
        orphans = [
            f"{table} {row[0]}"
            for table, query in _orphan_queries()
            for row in connection.execute(query)
            if _is_orphan(row[0])
        ]
    return found, orphans + ([] if integrity == "ok" else [f"integrity_check: {integrity}"])


async def _read_postgres(url: str, names: list[str]) -> tuple[dict[str, Raw], list[str]]:
    connection = await asyncpg.connect(url)
    try:

        async def ask(query: str, name: str) -> list[Any]:
            return list(await connection.fetch(query.format("$1"), name))

        found = {}
        for name in names:
            found[name] = _raw(*[await ask(query, name) for query in QUERIES])
        orphans = [
            f"{table} {row[0]}"
            for table, query in _orphan_queries()
            for row in await connection.fetch(query)
            if _is_orphan(row[0])
        ]
    finally:
        await connection.close()
    return found, orphans


# -- Redis


def _read_redis(target: Target, names: list[str]) -> tuple[dict[str, Raw], list[str]]:
    client = _redis_client(target)
    try:
        found = {name: _raw_redis(client, name) for name in names}
        known = {key.partition("{")[2].partition("}")[0] for key in client.scan_iter("agent:session:{*", count=1000)}
        tagged = {
            key.partition("{")[2].partition("}")[0]
            for pattern in ("agent:session:*", "agent:stream:*")
            for key in client.scan_iter(pattern, count=1000)
        }
    finally:
        client.close()
    return found, sorted(name for name in tagged - known if _is_orphan(name))


def _redis_client(target: Target) -> Any:
    if target.backend == "cluster":
        port = int(target.url.rpartition(":")[2])
        return redis.RedisCluster(host=HOST, port=port, decode_responses=True)
    return redis.Redis.from_url(target.url, decode_responses=True)


def _raw_redis(client: Any, name: str) -> Raw:
    records = client.hgetall(f"agent:session:runs:{{{name}}}")
    runs = [json.loads(record.partition(":")[2])["status"] for record in records.values()]
    chunks = [
        (int(entry.partition("-")[0]), json.loads(fields["c"]))
        for entry, fields in client.xrange(f"agent:stream:{{{name}}}")
    ]
    messages = [json.loads(text) for text in client.lrange(f"agent:session:messages:{{{name}}}", 0, -1)]
    shelves = [
        json.loads(text)
        for field, text in client.hgetall(f"agent:session:branches:{{{name}}}").items()
        if field.startswith("data:")
    ]
    shelved = [json.loads(text) for shelf in shelves for text in shelf["messages"]]
    entries = [json.loads(text) for text in client.hvals(f"agent:usage:entries:{{{name}}}")]
    tools = [(entry["run_id"], entry["step_count"], entry["tool_name"]) for entry in entries if entry["kind"] == "tool"]
    return Raw(messages, runs, chunks, client.hlen(f"agent:session:staging:{{{name}}}"), shelved, tools)
