"""The address of stores: `scheme:place?option=value`, the same on the command line, in code and in HELIX_URL.

An address may hold passwords, so nothing here or in an opener puts its text into a sentence: `shown` is the address for
people, and `without_secrets` cleans what a driver said about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypedDict, TypeVar
from urllib.parse import parse_qsl, unquote

from ..errors import InvalidArgument
from ..streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS

T = TypeVar("T")

STREAM_OPTIONS = frozenset({"max_chunks", "stream_ttl_seconds"})
"""The options of every backend for the streams it keeps."""

HIDDEN = "***"
EXAMPLES = "write for example sqlite:helix.db, memory: or redis://localhost:6379"

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")
_SECRET_OPTIONS = re.compile(r"pass|secret|token|dsn|key", re.IGNORECASE)


class StreamRetention(TypedDict):
    """How much of its streams a stream manager keeps; `ttl` is in seconds."""

    max_chunks: int
    ttl: int


class StoresUrl(NamedTuple):
    """A parsed address. `place` is everything between the scheme's colon and the question mark.

    `migrate` is False if the stores must be there already: then the opener neither creates nor changes a schema, and
    raises `NotMigrated` where there is none or an older one.
    """

    text: str
    scheme: str
    place: str
    options: Mapping[str, str]
    migrate: bool = True

    def __repr__(self) -> str:
        return f"<stores at {self.shown}>"

    @property
    def shown(self) -> str:
        """The address without passwords and options."""
        return f"{self.scheme}:{_without_user(self.place)}"

    def without_secrets(self, sentence: object) -> str:
        """Return a message about this address, without the passwords in it."""
        text = str(sentence).replace(self.text, self.shown)
        for secret in self._secrets():
            text = text.replace(secret, HIDDEN)
        return text

    def _secrets(self) -> list[str]:
        user, at, _ = self.place.rpartition("@")
        password = user.partition(":")[2] if at else ""
        found = [password, *(value for name, value in self.options.items() if _SECRET_OPTIONS.search(name))]
        return sorted({each for secret in found if secret for each in (secret, unquote(secret))}, key=len, reverse=True)

    def option(self, name: str, kind: Callable[[str], T], default: T) -> T:
        """Return the value of an option, or `default`."""
        if name not in self.options:
            return default
        try:
            return kind(self.options[name])
        except ValueError as error:
            raise InvalidArgument(
                f"Invalid option {name}={self.options[name]!r} of {self.shown}: expected {_KINDS.get(kind, 'another')}."
            ) from error

    def only(self, known: Iterable[str]) -> None:
        """Reject options that this kind of store does not have."""
        names = sorted(known)
        for name in self.options:
            if name not in names:
                raise InvalidArgument(f"Unknown option {name!r} of {self.shown}. Known options: {', '.join(names)}.")

    def ensure_server(self) -> None:
        """Reject an address that would be misread, mostly because of characters in its password."""
        authority, _, path = self.place.removeprefix("//").partition("/")
        hosts = authority.rpartition("@")[2].split(",")
        misread = "@" in path or "#" in self.text or not self.place.startswith("//")
        if misread or not all(_HOST.fullmatch(host) for host in hosts):
            raise InvalidArgument(
                f"This {self.scheme} address cannot be parsed: write {self.scheme}://user:password@host:port/name"
                ", with / ? # @ : in a password percent-encoded."
            )

    def stream_retention(self) -> StreamRetention:
        """Return the two `STREAM_OPTIONS`, as arguments of a stream manager."""
        return {
            "max_chunks": self.option("max_chunks", int, DEFAULT_MAX_CHUNKS),
            "ttl": self.option("stream_ttl_seconds", int, DEFAULT_TTL_SECONDS),
        }


def as_bool(text: str) -> bool:
    """Return the value of an option that is on or off."""
    if text.lower() not in ("0", "1", "true", "false", "yes", "no"):
        raise ValueError(text)
    return text.lower() in ("1", "true", "yes")


_KINDS: dict[object, str] = {int: "an integer", float: "a number", as_bool: "true or false"}


def parse_url(text: str, *, migrate: bool = True) -> StoresUrl:
    """Return the parts of an address."""
    if not isinstance(text, str):
        raise InvalidArgument(f"The address of a store must be a string, not {type(text).__name__}: {EXAMPLES}.")
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme:
        raise InvalidArgument(f"{_without_user(text)!r} is not a store address: {EXAMPLES}.")
    place, _, query = rest.partition("?")
    if "@" in query and "@" not in place and place.startswith("//"):
        raise InvalidArgument(f"This {scheme} address cannot be parsed: percent-encode the ? in its password (as %3F).")
    return StoresUrl(text, scheme.lower(), place, dict(parse_qsl(query, keep_blank_values=True)), migrate)


def _without_user(place: str) -> str:
    """Return a place without user name and password."""
    before, at, after = place.rpartition("@")
    if not at:
        return place
    return ("//" if before.startswith("//") else "") + after
