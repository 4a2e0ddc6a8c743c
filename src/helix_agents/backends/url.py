"""The address of stores: `scheme:place?option=value`, the same on the command line, in code and in HELIX_URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl

from ..errors import InvalidArgument

T = TypeVar("T")


class StoresUrl(NamedTuple):
    """A parsed address. `place` is everything between the scheme's colon and the question mark."""

    text: str
    scheme: str
    place: str
    options: Mapping[str, str]

    def option(self, name: str, kind: Callable[[str], T], default: T) -> T:
        """The value of an option, or `default`."""
        if name not in self.options:
            return default
        try:
            return kind(self.options[name])
        except ValueError as error:
            raise InvalidArgument(f"{self.text}: {name}={self.options[name]} is no {kind.__name__}.") from error

    def only(self, known: Iterable[str]) -> None:
        """Refuse options that this kind of store does not have."""
        for name in self.options:
            if name not in set(known):
                raise InvalidArgument(f"{self.text}: no option {name!r}; there are {', '.join(sorted(known))}.")


def parse_url(text: str) -> StoresUrl:
    """The parts of an address."""
    if not isinstance(text, str):
        raise InvalidArgument(f"The address of stores is a string, not {text!r}.")
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme:
        raise InvalidArgument(
            f"{text!r} is no address of stores: write for example sqlite:helix.db, memory: or redis://localhost:6379."
        )
    place, _, query = rest.partition("?")
    return StoresUrl(text, scheme.lower(), place, dict(parse_qsl(query, keep_blank_values=True)))
