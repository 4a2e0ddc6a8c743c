"""`helix crashtest`: kill a user's agent at every durable point, and report what happens to its effects."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import Any

from ..crashtest.killing import crashtest_by_kill
from ..crashtest.rounds import crashtest
from ..errors import InvalidArgument
from .command import add_json
from .output import emit, say
from .targets import find


def add_crashtest(commands: Any) -> None:
    """Add the command `crashtest`."""
    summary = "kill an agent of yours at every durable point, and count the effects of its tools"
    parser = commands.add_parser("crashtest", help=summary, description=summary.capitalize() + ".")
    parser.add_argument("target", help="module:function of the stores that returns an executor with a scripted model")
    parser.add_argument("--agent", required=True, help="the name of the agent")
    parser.add_argument("--input", default="Go", help="what the user says")
    parser.add_argument("--reset", help="module:function that puts the world outside back to how it was")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try only every n-th point")
    parser.add_argument("--kill", action="store_true", help="end real processes with SIGKILL; slower")
    parser.add_argument("--rounds", type=int, help="with --kill: how many rounds")
    parser.add_argument("--url", help="with --kill: stores to use instead of a SQLite file")
    add_json(parser, "the report")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    if not given.kill and (given.url is not None or given.rounds is not None):
        raise InvalidArgument("--url and --rounds require --kill.")
    if given.every < 1 or (given.rounds is not None and given.rounds < 1):
        raise InvalidArgument("--every and --rounds must be positive.")
    options: dict[str, Any] = {"reset": None if given.reset is None else _function(given.reset), "every": given.every}
    make = _function(given.target)
    logging.disable(logging.WARNING)  # every kill leaves a warning
    try:
        if given.kill:
            report = crashtest_by_kill(make, given.agent, given.input, url=given.url, rounds=given.rounds, **options)
        else:
            report = asyncio.run(crashtest(make, given.agent, given.input, **options))
    finally:
        logging.disable(logging.NOTSET)
    if given.json:
        emit(report)
    else:
        say(str(report))
    return 0 if report.is_clean else 1


def _function(name: str) -> Any:
    found = find(name)
    if not callable(found):
        raise InvalidArgument(f"{name!r} is not a function.")
    return found
