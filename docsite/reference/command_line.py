"""The command line, from its parsers."""

from __future__ import annotations

import argparse

from helix_agents.cli.main import _parser
from helix_agents.conformance.run import _parser as _conformance_parser

from .markdown import cell, code, table


def command_line_page() -> str:
    """Return every command with its arguments."""
    parts = [
        "# Commands",
        "`helix COMMAND --help` shows the same. [The command line](../command-line.md) shows how they are used.",
    ]
    for name, command in all_commands().items():
        parts.append(f"## helix {name}\n\n{command.description or ''}\n\n{arguments_table(command)}")
    return "\n\n".join(parts) + "\n"


def all_commands() -> dict[str, argparse.ArgumentParser]:
    """Return every command; `helix conformance` has a parser of its own."""
    return {**dict(commands_of(_parser())), "conformance": _conformance_parser()}


def commands_of(parser: argparse.ArgumentParser, prefix: str = "") -> list[tuple[str, argparse.ArgumentParser]]:
    """Return the commands below a parser; a command with verbs stands for its verbs."""
    found: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                below = commands_of(command, f"{prefix}{name} ")
                found += below or [(f"{prefix}{name}", command)]
    return found


def arguments_table(command: argparse.ArgumentParser) -> str:
    """Return the arguments of a command."""
    rows = []
    for action in command._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        name = ", ".join(action.option_strings) or action.dest
        value = action.metavar or action.dest.upper() if action.option_strings and action.nargs != 0 else ""
        default = (
            ""
            if action.default in (None, False, [], argparse.SUPPRESS) or action.dest == "url"
            else code(str(action.default))
        )
        note = (
            "where the stores are: else HELIX_URL, else sqlite:helix.db" if action.dest == "url" else action.help or ""
        )
        rows.append([code(f"{name} {value}".strip()), default, cell(note.replace("%%", "%"))])
    return table(["argument", "default", ""], rows)
