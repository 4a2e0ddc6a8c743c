"""Store URLs: their parts, their options, and no password in anything that is printed."""

from __future__ import annotations

import pytest

from helix_agents.backends.url import as_bool, parse_url
from helix_agents.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "scheme", "place", "options"),
    [
        ("memory:", "memory", "", {}),
        ("SQLITE:a/b.db?prefix=x", "sqlite", "a/b.db", {"prefix": "x"}),
        ("redis://u:p@h:1/0?a=&b=2", "redis", "//u:p@h:1/0", {"a": "", "b": "2"}),
    ],
)
def test_an_address_has_a_scheme_a_place_and_options(
    text: str, scheme: str, place: str, options: dict[str, str]
) -> None:
    url = parse_url(text)
    assert (url.scheme, url.place, url.options) == (scheme, place, options)


@pytest.mark.parametrize("text", ["", "helix.db", ":x", "redis://u:p?q@h"])
def test_what_is_not_an_address_is_rejected(text: str) -> None:
    with pytest.raises(InvalidArgument, match="address"):
        parse_url(text)


def test_people_read_neither_passwords_nor_options() -> None:
    url = parse_url("redis://user:p%40ss@host/0?token=abc")
    assert url.shown == "redis://host/0"
    assert url.without_secrets("Failed p%40ss, p@ss and abc at redis://user:p%40ss@host/0?token=abc") == (
        "Failed ***, *** and *** at redis://host/0"
    )


def test_options_have_types_and_names() -> None:
    url = parse_url("memory:?max_chunks=5&on=yes&bad=x")
    assert url.option("max_chunks", int, 1) == 5
    assert url.option("missing", int, 1) == 1
    assert url.option("on", as_bool, False) is True
    with pytest.raises(InvalidArgument, match=r"bad='x' .*: expected an integer"):
        url.option("bad", int, 1)
    with pytest.raises(InvalidArgument, match=r"Unknown option 'on'.*Known options: bad, max_chunks"):
        url.only(["bad", "max_chunks"])


@pytest.mark.parametrize("text", ["redis://u:a/b@h", "redis://h#x", "redis:h", "redis://u:p@h:x:y"])
def test_an_address_that_would_be_misread_is_rejected(text: str) -> None:
    with pytest.raises(InvalidArgument, match="percent-encoded"):
        parse_url(text).ensure_server()
