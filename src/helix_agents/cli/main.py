"""The entry point of the command line: the list of commands, and how errors are reported."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from ..backends.registry import schemes
from ..demo import add_demo_arguments, run_demo
from ..errors import HelixError
from .chat import add_chat
from .cloudflare import add_cloudflare
from .command import DEFAULT_URL, URL_VARIABLE
from .completion import add_completion
from .crashtest import add_crashtest
from .environment import load_env
from .init import add_init
from .output import complain
from .runs import add_answer
from .schedules import add_schedules
from .serving import add_serve
from .sessions import add_sessions
from .targets import look_in_current_folder
from .transfer import add_transfer
from .upkeep import add_upkeep
from .worker import add_worker

DISTRIBUTION = "helix-agents"
EPILOG = f"""\
Where the stores are: --url, else {URL_VARIABLE}, else {DEFAULT_URL}.
Variables may also be in a file .env in the current folder.
Known backends: {", ".join(schemes())}.
Only chat, migrate, import, serve, worker and demo create stores or change their schema.

for example:
  helix demo                                        see what it is about
  helix init my-app                                 a project to start from
  helix chat                                        talk to a demo agent
  helix serve                                       demo agents, and a page to look at them
  helix serve my_app:make_executor --url sqlite:app.db
  helix sessions list --status failed --json
  helix tail my-session                             follow what it does now
  helix export all.jsonl --url sqlite:app.db && helix import all.jsonl --url postgresql://db/app

`helix COMMAND --help` tells more.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    load_env()
    if arguments[:1] == ["conformance"]:  # has options of its own, and is large
        look_in_current_folder()
        return int(import_module("..conformance.run", __package__).main(arguments[1:]))
    given = _parser().parse_args(arguments)
    try:
        code: int = given.run(given)
        sys.stdout.flush()  # here, where a broken pipe can still be distinguished from a failure
        return code
    except HelixError as error:
        complain(f"helix: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader closed the pipe: `helix sessions list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        complain(f"helix: {error.strerror}: {error.filename}")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="helix",
        description="Serve agents, and look after the sessions, streams and schemas of helix-agents stores.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{DISTRIBUTION} {version(DISTRIBUTION)}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo", help="see an agent survive a kill -9", description="See an agent survive a kill -9."
    )
    add_demo_arguments(demo)
    demo.set_defaults(run=run_demo)
    add_init(commands)
    add_cloudflare(commands)
    add_chat(commands)
    add_serve(commands)
    add_worker(commands)
    add_sessions(commands)
    add_answer(commands)
    add_schedules(commands)
    add_upkeep(commands)
    add_transfer(commands)
    add_crashtest(commands)
    kit = "check a store of your own: helix conformance module:harness"
    commands.add_parser("conformance", help=kit, description=kit.capitalize() + ".")
    add_completion(commands, parser)
    return parser
