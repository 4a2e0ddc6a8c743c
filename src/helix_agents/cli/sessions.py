"""`helix sessions ...`: list, show, delete, fork and restore sessions. `runs.py` controls their runs."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from ..backends.registry import Stores
from ..clock import random_id
from ..errors import InvalidArgument, SessionNotFound
from ..ids import RESERVED_PREFIX
from ..messages import without_native
from ..stores.state.tree import session_tree
from .command import add_command, add_json
from .output import complain, emit, say, say_document, session_line
from .runs import add_run_verbs
from .targets import steering


def add_sessions(commands: Any) -> None:
    """Add the command with its verbs."""
    sessions = commands.add_parser(
        "sessions",
        help="list, show, delete, fork, restore, interrupt or resume sessions",
        description="Look at sessions and change them. `helix sessions VERB --help` tells more about each.",
    )
    verbs = sessions.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = add_command(verbs, "list", _list, "list sessions, newest first")
    for name in ("user", "agent", "status", "parent", "tag"):
        listing.add_argument(f"--{name}", help=f"only those with this {name}")
    listing.add_argument("--roots", action="store_true", help="leave out the sessions of sub-agents")
    listing.add_argument("--limit", type=int, default=50, help="at most so many (50; up to 200)")
    listing.add_argument("--cursor", help="continue after an earlier page")
    add_json(listing, "one session a line")
    show = add_command(verbs, "show", _show, "show one session: fields, custom state, runs, checkpoints, messages")
    show.add_argument("session", help="the id of the session")
    show.add_argument("--messages", type=int, default=10, metavar="N", help="the last N messages (default 10)")
    add_json(show, "one JSON document")
    delete = add_command(verbs, "delete", _delete, "delete a session and all below it, with their streams and usage")
    delete.add_argument("session", help="the id of the session")
    delete.add_argument("--keep-usage", action="store_true", help="leave what they spent on the books")
    add_json(delete, "one JSON document")
    fork = add_command(verbs, "fork", _fork, "make an independent session from another")
    fork.add_argument("session", help="the id of the session")
    fork.add_argument("--to", metavar="ID", help="the new session's id (default: a random one)")
    fork.add_argument("--checkpoint", metavar="ID", help="as of this checkpoint (default: now)")
    add_json(fork, "the new session as one JSON document")
    restore = add_command(verbs, "restore", _restore, "take a session back to one of its checkpoints")
    restore.add_argument("session", help="the id of the session")
    restore.add_argument("checkpoint", help="its id, as `sessions show` lists it")
    add_json(restore, "the session as one JSON document")
    add_run_verbs(verbs)


async def _list(given: argparse.Namespace, stores: Stores) -> int:
    filters: dict[str, Any] = {"user_id": given.user, "agent_type": given.agent, "status": given.status}
    if given.roots and given.parent is not None:
        raise InvalidArgument("--roots lists sessions without a parent: leave out --parent.")
    if given.roots or given.parent is not None:
        filters["parent_session_id"] = given.parent
    if given.tag is not None:
        filters["tags"] = [given.tag]
    page = await stores.state.list_sessions(**filters, limit=given.limit, cursor=given.cursor, count=False)
    for session in page.items:
        if session.session_id.startswith(RESERVED_PREFIX):
            continue  # the library's own: `helix schedules list` shows those that matter
        if given.json:
            emit(session)
        else:
            say(session_line(session))
    if page.next_cursor:
        tell = complain if given.json else say
        tell(f"more: --cursor {page.next_cursor}")
    return 0


async def _show(given: argparse.Namespace, stores: Stores) -> int:
    state = await stores.state.load_state(given.session)
    if state is None:
        raise SessionNotFound(given.session)
    messages = await stores.state.get_messages(given.session, offset=-max(1, given.messages), limit=given.messages or 1)
    document = {
        "session": msgspec.to_builtins(state),
        "runs": msgspec.to_builtins(await stores.state.list_runs(given.session)),
        "checkpoints": [
            {"checkpoint_id": each.checkpoint_id, "step_count": each.step_count, "message_count": each.message_count}
            for each in (await stores.state.list_checkpoints(given.session, limit=5)).items
        ],
        "message_count": messages.total,
        "messages": [without_native(message) for message in messages.items] if given.messages else [],
    }
    if given.json:
        emit(document)
        return 0
    say(session_line(state))
    say_document(document)
    return 0


async def _delete(given: argparse.Namespace, stores: Stores) -> int:
    below = len(await session_tree(stores.state, given.session)) - 1
    async with steering(stores) as executor:
        if not await executor.delete_session(given.session, keep_usage=given.keep_usage):
            raise SessionNotFound(given.session)
    if given.json:
        emit({"session_id": given.session, "below": below})
    else:
        say(f"Deleted {given.session}{f' and {below} below it' if below else ''}.")
    return 0


async def _fork(given: argparse.Namespace, stores: Stores) -> int:
    new_id = given.to or random_id()
    async with steering(stores) as executor:
        state = await executor.fork_session(given.session, new_id, checkpoint_id=given.checkpoint)
    if given.json:
        emit(state)
    else:
        say(state.session_id)
    return 0


async def _restore(given: argparse.Namespace, stores: Stores) -> int:
    async with steering(stores) as executor:
        state = await executor.restore(given.session, given.checkpoint)
    if given.json:
        emit(state)
    else:
        say(f"{given.session} is back at {given.checkpoint}, as version {state.version}.")
    return 0
