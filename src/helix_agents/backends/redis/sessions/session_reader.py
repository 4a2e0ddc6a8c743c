"""Read sessions as one snapshot, without scripts: one MULTI requests everything that is needed.

Which lists and objects custom state has, and which run is the latest, is not known beforehand. The first request
guesses (what was there last time), and if the reply names others, a second one asks for those: a wrong guess costs a
round trip, never consistency.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....codec import decode
from ....errors import StoreCorrupt, StoreUnavailable
from ....retry import CONFLICT
from ....stores.state.commit import LIST, OBJECT, StoredCheckpoint
from ..client.connection import Command
from ..client.servers import Servers
from ..keys import SessionKeys
from .history import CustomImage, Entry, Holder, entry_of, shelves_of
from .session_hash import as_fields, as_texts, text_or_none

SEPARATOR = "\x1f"
MAX_REMEMBERED = 4096


class CheckpointRead(NamedTuple):
    """A checkpoint's row, and how long the undo log was at that time."""

    row: StoredCheckpoint
    undo_length: int
    text: str


class SessionRead(NamedTuple):
    """A session as of one moment."""

    fields: dict[str, str]
    message_count: int
    checkpoint_count: int
    custom: CustomImage
    messages: list[str]
    run: str | None = None
    """The latest run, if it was requested."""
    checkpoint: str | None = None
    """The latest checkpoint, if it was requested."""


class Guess(NamedTuple):
    """What a session is expected to have: lists and objects in custom state, and its latest run."""

    containers: dict[str, str]
    run_id: str = ""


def checkpoint_from(text: str, number: int) -> CheckpointRead:
    """Return a row of the checkpoint list."""
    try:
        undo_length, version, message_count, status, born_at, incarnation, facts, state = text.split(SEPARATOR)
        checkpoint_id, step_id, step_count, stream_sequence, created_at, kind = decode(facts)
        row = StoredCheckpoint(
            checkpoint_id=checkpoint_id,
            number=number,
            step_id=step_id,
            step_count=step_count,
            stream_sequence=stream_sequence,
            message_count=int(message_count),
            status=status,  # type: ignore[arg-type]  # stored by us
            version=int(version),
            state=state,
            created_at=created_at,
            session_created_at=int(born_at),
            session_incarnation=incarnation,
            kind=kind,
        )
        return CheckpointRead(row, int(undo_length), text)
    except ValueError as error:
        raise StoreCorrupt(f"A checkpoint cannot be read from Redis: {text[:80]!r}") from error


class SessionReader:
    """Reads whole sessions."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._guesses: OrderedDict[str, Guess] = OrderedDict()

    async def session(
        self,
        keys: SessionKeys,
        *,
        at: CheckpointRead | None = None,
        messages: tuple[int, int] | None = None,
        custom_state: bool = True,
        latest: bool = False,
    ) -> SessionRead | None:
        """Return the session, now or as of a checkpoint; messages from and to (inclusive) if asked for.

        `latest`: with its latest run and checkpoint. None if there is no session, or no longer that checkpoint.
        """
        guess, shelves = self._guesses.get(keys.main, Guess({})), dict[str, str]()
        for _ in CONFLICT.attempts():
            containers = guess.containers if custom_state else {}
            wanted = _wanted(keys, at, messages, guess.run_id, custom_state=custom_state, latest=latest)
            commands = [*wanted, *_contents(keys, containers, shelves)]
            answers = await self._servers.run(keys.main, commands, atomic=True)
            main, said, made, flat, at_row, undone, texts, run_id, record, row, *contents = answers
            fields = as_fields(main)
            if not fields or (at is not None and text_or_none(at_row) != at.text):
                return None
            custom = as_fields(flat) if custom_state else {}
            needed = {field: text for field, text in custom.items() if text in (LIST, OBJECT)}
            entries = [entry_of(text) for text in as_texts(undone)]
            needed_shelves = shelves_of(entries)
            latest_run = (text_or_none(run_id) or "") if latest else guess.run_id
            guessed = needed.items() <= containers.items() and latest_run == guess.run_id
            guess = Guess(needed if custom_state else guess.containers, latest_run)
            if guessed and needed_shelves.keys() <= shelves.keys():
                image = _image(custom, needed, entries, containers, shelves, contents)
                self._remember(keys.main, guess)
                beside = (text_or_none(record), text_or_none(row)) if latest else ()
                return SessionRead(fields, int(said), int(made), image, as_texts(texts), *beside)
            shelves = needed_shelves
        raise StoreUnavailable(f"Redis, key {keys.main!r}: the session changes too fast to be read. Try again.")

    def _remember(self, main: str, guess: Guess) -> None:
        self._guesses[main] = guess
        self._guesses.move_to_end(main)
        if len(self._guesses) > MAX_REMEMBERED:
            self._guesses.popitem(last=False)


def _wanted(
    keys: SessionKeys,
    at: CheckpointRead | None,
    messages: tuple[int, int] | None,
    run_id: str,
    *,
    custom_state: bool,
    latest: bool,
) -> list[Command]:
    nothing: Command = ("LRANGE", keys.undo, 1, 0)
    return [
        ("HGETALL", keys.main),
        ("LLEN", keys.messages),
        ("LLEN", keys.checkpoints),
        ("HGETALL", keys.custom) if custom_state else nothing,
        nothing if at is None else ("LINDEX", keys.checkpoints, at.row.number - 1),
        nothing if at is None else ("LRANGE", keys.undo, at.undo_length, -1),
        nothing if messages is None else ("LRANGE", keys.messages, *messages),
        ("LINDEX", keys.run_ids, -1) if latest else nothing,
        ("HGET", keys.runs, run_id) if latest else nothing,
        ("LINDEX", keys.checkpoints, -1) if latest else nothing,
    ]


def _contents(keys: SessionKeys, containers: dict[str, str], shelves: dict[str, str]) -> list[Command]:
    wanted: list[Command] = []
    for field, kind in containers.items():
        wanted.append(("LRANGE", keys.list_of(field), 0, -1) if kind == LIST else ("HGETALL", keys.object_of(field)))
    for shelf, kind in shelves.items():
        wanted.append(("LRANGE", keys.shelf(shelf), 0, -1) if kind == "l" else ("HGETALL", keys.shelf(shelf)))
    return wanted


def _image(
    custom: dict[str, str],
    needed: dict[str, str],
    entries: Sequence[Entry],
    containers: dict[str, str],
    shelves: dict[str, str],
    answers: Sequence[Any],
) -> CustomImage:
    contents = dict(zip(containers, answers, strict=False))
    shelved = {
        name: as_texts(answer) if kind == "l" else as_fields(answer)
        for (name, kind), answer in zip(shelves.items(), answers[len(containers) :], strict=True)
    }
    holders: dict[str, Holder] = {}
    for field, text in custom.items():
        kind = needed.get(field)
        holders[field] = text if kind is None else (as_texts if kind == LIST else as_fields)(contents[field])
    image = CustomImage(holders)
    image.take_back(entries, shelved)
    return image
