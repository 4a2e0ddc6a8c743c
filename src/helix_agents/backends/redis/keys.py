"""Every key that this backend uses, in one place; `docs/redis.md` shows the same as a table.

All keys of a session carry the hash tag `{session_id}` with literal braces, so a cluster keeps them on one node and one
script can change them together. The same holds for a stream and its parts. What is about many sessions (the listing
index) lives under a tag of its own. Nothing here talks to a server.
"""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from typing import NamedTuple

from ...codec import encode, escape_text
from ...errors import InvalidArgument
from ...ids import ensure_id
from ...types import SessionState

STATIC = (
    "",
    ":messages",
    ":customstate",
    ":customstate:arraykeys",
    ":customstate:objectkeys",
    ":checkpoints",
    ":checkpoints:ids",
    ":undo",
    ":history",
    ":staging",
    ":runs",
    ":runs:ids",
    ":subsession",
    ":subsession:ids",
    ":branches",
)
"""The keys that a session has at most once. `lua/words.lua` has the same list: all of them expire together."""

IN_EVERY_COMMIT = 10
"""How many of them, from the first, every program declares: the script knows them by position."""


def checked_prefix(prefix: str) -> str:
    """Return the prefix without trailing colons. Raises `InvalidArgument` for braces, which would move the hash tag."""
    ensure_id(prefix, "prefix")
    if not prefix.strip(":"):
        raise InvalidArgument(f"prefix must contain more than colons, not {prefix!r}.")
    return prefix.rstrip(":")


class SessionKeys:
    """The keys of one session."""

    main: str
    """HASH: the session's fields."""
    messages: str
    """LIST: one JSON text per message."""
    custom: str
    """HASH: top-level key -> JSON text, or `[` or `{` where a list or an object has a key of its own."""
    array_keys: str
    """SET: which top-level keys are lists."""
    object_keys: str
    """SET: which top-level keys are objects."""
    checkpoints: str
    """LIST: one row per checkpoint, the oldest first."""
    checkpoint_ids: str
    """HASH: short checkpoint id -> its number, from 1."""
    undo: str
    """LIST: how to undo every change of custom state since the first checkpoint."""
    history: str
    """SET: names of the lists and objects that were replaced as a whole and are kept for older checkpoints."""
    staging: str
    """HASH: step, tool call and token -> row."""
    runs: str
    """HASH: run id -> turn and record."""
    run_ids: str
    """LIST: run ids in order."""
    refs: str
    """HASH: sub-session id -> ref."""
    ref_ids: str
    """LIST: sub-session ids in the order in which they were added."""
    branches: str
    """HASH: the records of branches, and the ends that were put aside."""

    def __init__(self, prefix: str, session_id: str) -> None:
        self.session_id = session_id
        self.head = f"{prefix}:session"
        self.tail = f":{{{session_id}}}"
        self.all_static = tuple(f"{self.head}{name}{self.tail}" for name in STATIC)
        (
            self.main,
            self.messages,
            self.custom,
            self.array_keys,
            self.object_keys,
            self.checkpoints,
            self.checkpoint_ids,
            self.undo,
            self.history,
            self.staging,
            self.runs,
            self.run_ids,
            self.refs,
            self.ref_ids,
            self.branches,
        ) = self.all_static
        self.of_commit = self.all_static[:IN_EVERY_COMMIT]
        self.places = {key: place for place, key in enumerate(self.of_commit, 1)}

    def list_of(self, field: str) -> str:
        """LIST: the items of one top-level list."""
        return f"{self.head}:customstate:list{self.tail}:{field}"

    def object_of(self, field: str) -> str:
        """HASH: the members of one top-level object."""
        return f"{self.head}:customstate:object{self.tail}:{field}"

    def shelf(self, name: str) -> str:
        """LIST or HASH: one replaced list or object."""
        return f"{self.head}:history{self.tail}:{name}"


def run_key(prefix: str, run_id: str) -> str:
    """STRING: the id of the session that a run belongs to."""
    return f"{prefix}:run:{{{run_id}}}"


class IndexKeys:
    """The listing index of one application: all of it in one slot."""

    def __init__(self, prefix: str) -> None:
        self._head = f"{prefix}:index:{{{prefix}}}"

    def facet(self, facet: str) -> str:
        """ZSET: the sessions that have this property, by age (all scores are 0, members sort as text)."""
        return f"{self._head}:by:{facet}"

    def entry(self, session_id: str) -> str:
        """SET: where this session was entered, as facet and time of creation."""
        return f"{self._head}:entry:{session_id}"

    def fresh(self, session_id: str) -> str:
        """STRING that expires soon: a write to this session is about to happen, so its entries may be ahead of it."""
        return f"{self._head}:fresh:{session_id}"

    def referrers(self, session_id: str) -> str:
        """SET: sessions that hold, or held, a ref to this one."""
        return f"{self._head}:referrers:{session_id}"

    @cached_property
    def deadlines(self) -> str:
        """ZSET: session id -> when it may have expired and must be checked."""
        return f"{self._head}:deadlines"

    @cached_property
    def running(self) -> str:
        """ZSET: run -> `lease_until`, of the runs that are `running`."""
        return f"{self._head}:running"

    @cached_property
    def expiry(self) -> str:
        """ZSET: member -> `expires_at`."""
        return self.facet("expires")


def member_of(created_at: int, session_id: str) -> str:
    """Return the index member of a session: members sort by `(created_at, session_id)`."""
    return f"{created_at:016d}:{session_id}"


def session_of(member: str) -> tuple[int, str]:
    """Return what `member_of` was given."""
    return int(member[:16]), member[17:]


def labels_of(state: SessionState) -> list[str]:
    """Return the facets of a session that do not change with its status."""
    facets = ["all", f"agent={state.agent_type}"]
    facets.append("roots" if state.parent_session_id is None else f"parent={state.parent_session_id}")
    if state.user_id is not None:
        facets.append(f"user={state.user_id}")
    facets += [f"tag={tag}" for tag in sorted(set(state.tags))]
    facets += [metadata_facet(key, text) for key, text in sorted(state.metadata.items())]
    return facets


def metadata_facet(key: str, text: str) -> str:
    """Return the facet of one metadata entry: a digest, because metadata may be long. Matches are compared in full."""
    return f"meta={hashlib.blake2b(encode([key, text]).encode(), digest_size=12).hexdigest()}"


def status_facet(status: str) -> str:
    """Return the facet of a status."""
    return f"status={status}"


def digest_of(state: SessionState) -> str:
    """Return the digest of the labels that a session stores, to notice a change without sending all labels."""
    metadata = tuple(sorted(state.metadata.items()))
    return _digest(
        state.agent_type, state.parent_session_id, state.user_id, tuple(state.tags), metadata, state.expires_at
    )


@lru_cache(maxsize=1024)
def _digest(*labels: object) -> str:
    return hashlib.blake2b(encode(labels).encode(), digest_size=8).hexdigest()


def short_checkpoint_id(session_id: str, checkpoint_id: str) -> str:
    """Return a checkpoint id without the part that all ids of its session share."""
    return checkpoint_id.removeprefix(f"cpv1-{session_id}-")


def field_name(key: str) -> str:
    """Return a custom state key as a name that Redis can store; lone surrogates have no UTF-8."""
    return escape_text(key)


class StreamKeys(NamedTuple):
    """The keys of one stream: HASH with its head, STREAM of chunks, HASH of what each producer wrote last."""

    meta: str
    chunks: str
    producers: str

    @classmethod
    def of(cls, prefix: str, stream_id: str) -> StreamKeys:
        """Return the keys of a stream."""
        kinds = ("stream:meta", "stream", "stream:producers")
        return cls(*[f"{prefix}:{kind}:{{{stream_id}}}" for kind in kinds])

    @property
    def session(self) -> str:
        """The main key of the session whose id is the stream's id."""
        prefix, _, tag = self.meta.rpartition(":stream:meta:")
        return f"{prefix}:session:{tag}"


class UsageKeys:
    """The keys of usage: entries in the slot of their session, their order by time and the links in one slot."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._head = f"{prefix}:usage:{{{prefix}}}"
        self.by_time = f"{self._head}:time"
        """ZSET: session and entry id -> timestamp."""

    def entries(self, session_id: str) -> str:
        """HASH: entry id -> entry."""
        return f"{self._prefix}:usage:entries:{{{session_id}}}"

    def session(self, session_id: str) -> str:
        """Return the main key of the session, which the entries expire with."""
        return SessionKeys(self._prefix, session_id).main

    def below(self, session_id: str) -> str:
        """SET: the children of a session."""
        return f"{self._head}:below:{session_id}"

    def above(self, session_id: str) -> str:
        """SET: the parents of a session."""
        return f"{self._head}:above:{session_id}"


class BlobKeys:
    """The keys of blobs: those of a space in one slot."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def heads(self, space: str) -> str:
        """HASH: digest -> head."""
        return f"{self._prefix}:blobs:{{{space}}}"

    def pieces(self, space: str, digest: str) -> str:
        """HASH: number -> piece."""
        return f"{self._prefix}:blobs:{{{space}}}:{digest}"

    def written(self, space: str) -> str:
        """SET: the digests whose pieces were ever written, so that a deletion finds them all."""
        return f"{self._prefix}:blobs:{{{space}}}:written"


class MemoryKeys:
    """The keys of memories: those of an entity in one slot, and one list of entities."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.entities = f"{prefix}:memory:entities:{{{prefix}}}"
        """ZSET: entity and source, in order; an entry is written before its memory and may outlive it."""

    def memories(self, entity_id: str) -> str:
        """HASH: memory id -> memory, without its embedding."""
        return f"{self._prefix}:memory:{{{entity_id}}}"

    def texts(self, entity_id: str) -> str:
        """HASH: memory id -> its words in order."""
        return f"{self._prefix}:memory:texts:{{{entity_id}}}"

    def words(self, entity_id: str) -> str:
        """ZSET: word and memory id; all scores are 0, so that a lexical range finds words by prefix."""
        return f"{self._prefix}:memory:words:{{{entity_id}}}"

    def embeddings(self, entity_id: str) -> str:
        """HASH: memory id -> embedding."""
        return f"{self._prefix}:memory:embeddings:{{{entity_id}}}"

    def newest(self, entity_id: str, source: str | None) -> str:
        """ZSET: memory id -> `updated_at`, of all memories or of those of one source."""
        return f"{self._prefix}:memory:newest:{{{entity_id}}}" + ("" if source is None else f":{source}")
