"""`helix completion`: a bash script that completes commands, verbs and options, generated from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from .output import say

SCRIPT = """\
_helix() {{
    local place="" word="${{COMP_WORDS[COMP_CWORD]}}" each words=""
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{place:+$place }}$each" in
            {places}) place="${{place:+$place }}$each" ;;
        esac
    done
    case "$place" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _helix helix
"""


def add_completion(commands: Any, parser: argparse.ArgumentParser) -> None:
    """Add the command. `parser`: the whole command line, once it is complete."""
    made = commands.add_parser(
        "completion",
        help='complete commands in bash: eval "$(helix completion)"',
        description='Print a script for bash. To use it: eval "$(helix completion)", for example in ~/.bashrc.',
    )
    made.set_defaults(run=lambda given: _print(parser))


def _print(parser: argparse.ArgumentParser) -> int:
    places = dict(_places(parser, ""))
    cases = "\n".join(f'        "{place}") words="{" ".join(words)}" ;;' for place, words in places.items())
    say(SCRIPT.format(places=" | ".join(f'"{place}"' for place in places if place), cases=cases))
    return 0


def _places(parser: argparse.ArgumentParser, place: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command and verb with the words that may follow."""
    words: list[str] = []
    below: list[tuple[str, list[str]]] = []
    for action in parser._actions:
        words += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            words += action.choices
            for name, child in action.choices.items():
                below += _places(child, f"{place} {name}".strip())
    yield place, words
    yield from below
