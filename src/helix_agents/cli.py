"""The command line `helix`: what an operator does with stores, on any backend, by address."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import msgspec

from .backends.registry import Stores, open_stores, schemes
from .cleanup import expired_session_cleanup
from .clock import random_id
from .codec import encode
from .conformance.run import main as run_conformance
from .demo import add_demo_arguments, run_demo
from .errors import HelixError, SessionNotFound
from .stores.state.tree import session_tree
from .streams.terminal import tail
from .types import SessionState
from .verify import verify_sessions

DEFAULT_URL = "sqlite:helix.db"

Command = Callable[[argparse.Namespace, Stores], Coroutine[Any, Any, int]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["conformance"]:  # has options of its own
        return run_conformance(arguments[1:])
    if arguments[:1] == ["serve"]:  # needs an extra
        return int(import_module(".cli_serve", __package__).main(arguments[1:]))
    given = _parser().parse_args(arguments)
    try:
        if given.command == "demo":
            return run_demo(given)
        return asyncio.run(_with_stores(given))
    except HelixError as error:
        print(f"helix: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has had enough: `helix sessions list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


async def _with_stores(given: argparse.Namespace) -> int:
    run: Command = given.run
    async with open_stores(given.url) as stores:
        return await run(given, stores)


# -- what can be said


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="helix",
        description="Look after the sessions, streams and schemas of helix-agents stores.",
        epilog=f"Stores are addressed by URL ({', '.join(schemes())}): --url, else HELIX_URL, else {DEFAULT_URL}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_session_commands(commands)
    _add(commands, "migrate", _migrate, "bring the schema up to date")
    verify = _add(commands, "verify", _verify, "read everything back and report what does not fit together")
    verify.add_argument("session", nargs="?", help="only this session")
    cleanup = _add(commands, "cleanup", _cleanup, "fail sessions whose time has passed")
    cleanup.add_argument("--dry-run", action="store_true", help="only count")
    follow = _add(commands, "tail", _tail, "follow a session's stream in the terminal")
    follow.add_argument("session")
    follow.add_argument("--from", dest="from_sequence", type=int, metavar="N", help="begin after this sequence")
    follow.add_argument("--json", action="store_true", help="one chunk a line, for programs")
    commands.add_parser("serve", help="serve agents over HTTP: helix serve --help")
    commands.add_parser("conformance", help="check a store of your own: helix conformance module:harness")
    add_demo_arguments(commands.add_parser("demo", help="see an agent survive a kill -9"))
    return parser


def _add(commands: Any, name: str, run: Command, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
    url = os.environ.get("HELIX_URL", DEFAULT_URL)
    parser.add_argument("--url", default=url, help=f"where the stores are (now: {url})")
    parser.set_defaults(run=run)
    return parser


def _add_session_commands(commands: Any) -> None:
    sessions = commands.add_parser("sessions", help="list, show, delete or fork sessions")
    verbs = sessions.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = _add(verbs, "list", _list, "list sessions, newest first")
    for name in ("user", "agent", "status", "parent", "tag"):
        listing.add_argument(f"--{name}", help=f"only those with this {name}")
    listing.add_argument("--limit", type=int, default=50)
    listing.add_argument("--cursor", help="go on after an earlier page")
    listing.add_argument("--json", action="store_true", help="one session a line, for programs")
    show = _add(verbs, "show", _show, "show one session: fields, custom state, runs, checkpoints, messages")
    show.add_argument("session")
    show.add_argument("--messages", type=int, default=10, metavar="N", help="the last N messages (default 10)")
    show.add_argument("--json", action="store_true", help="one JSON document, for programs")
    delete = _add(verbs, "delete", _delete, "delete a session and all below it, with their streams and usage")
    delete.add_argument("session")
    fork = _add(verbs, "fork", _fork, "make an independent session from another")
    fork.add_argument("session")
    fork.add_argument("--to", metavar="ID", help="the new session's id (default: a random one)")
    fork.add_argument("--checkpoint", metavar="ID", help="as of this checkpoint (default: now)")


# -- what is done


async def _migrate(given: argparse.Namespace, stores: Stores) -> int:
    # Opening has migrated already: there is one way to have stores, and it leaves them ready.
    print(f"{given.url} is up to date.")
    return 0


async def _list(given: argparse.Namespace, stores: Stores) -> int:
    filters: dict[str, Any] = {"user_id": given.user, "agent_type": given.agent, "status": given.status}
    if given.parent is not None:
        filters["parent_session_id"] = given.parent
    if given.tag is not None:
        filters["tags"] = [given.tag]
    page = await stores.state.list_sessions(**filters, limit=given.limit, cursor=given.cursor, count=False)
    for session in page.items:
        print(encode(msgspec.to_builtins(session)) if given.json else _line(session))
    if page.next_cursor and not given.json:
        print(f"more: --cursor {page.next_cursor}")
    return 0


def _line(session: SessionState) -> str:
    return (
        f"{_when(session.created_at)}  {session.status:<12} {session.session_id}  {session.agent_type}  "
        f"step {session.step_count}, version {session.version}"
    )


def _when(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


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
        "messages": messages.items if given.messages else [],
    }
    if given.json:
        print(encode(document))
        return 0
    print(_line(state))
    for title, value in document.items():
        print(f"\n{title}")
        for line in value if isinstance(value, list) else _fields(value):
            print(f"  {line if isinstance(line, str) else encode(line)}")
    return 0


def _fields(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return [encode(value)]
    return [f"{name}: {encode(member)}" for name, member in value.items() if member not in (None, [], {}, ())]


async def _delete(given: argparse.Namespace, stores: Stores) -> int:
    sessions = await session_tree(stores.state, given.session)
    if not sessions:
        raise SessionNotFound(given.session)
    await stores.state.delete_session(given.session)
    for session in sessions:
        # A stream that bears the name of another session belongs to that one.
        if not await stores.state.session_exists(session.stream_id):
            await stores.streams.delete_stream(session.stream_id)
        await stores.usage.delete_entries(session.session_id, include_sub_sessions=False)
    print(f"Deleted {given.session}{f' and {len(sessions) - 1} below it' if len(sessions) > 1 else ''}.")
    return 0


async def _fork(given: argparse.Namespace, stores: Stores) -> int:
    new_id = given.to or random_id()
    state = await stores.state.fork_session(given.session, new_id, checkpoint_id=given.checkpoint)
    print(state.session_id)
    return 0


async def _verify(given: argparse.Namespace, stores: Stores) -> int:
    checked = bad = 0
    async for session_id, problems in verify_sessions(stores.state, given.session):
        checked += 1
        bad += bool(problems)
        for problem in problems:
            print(f"{session_id}: {problem}")
        if checked % 1000 == 0:
            print(f"{checked} sessions read ...", file=sys.stderr)
    print(f"{checked} sessions read, {bad} with problems.")
    return 1 if bad else 0


async def _cleanup(given: argparse.Namespace, stores: Stores) -> int:
    summary = await expired_session_cleanup(stores.state, stream_manager=stores.streams, dry_run=given.dry_run)
    for name, value in msgspec.structs.asdict(summary).items():
        print(f"{name}: {value if not isinstance(value, list) else len(value)}")
    for problem in summary.errors:
        print(problem, file=sys.stderr)
    return 1 if summary.errors else 0


async def _tail(given: argparse.Namespace, stores: Stores) -> int:
    state = await stores.state.load_state(given.session)
    stream_id = given.session if state is None else state.stream_id
    return await tail(stores.streams, stream_id, from_sequence=given.from_sequence, as_json=given.json, out=sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
