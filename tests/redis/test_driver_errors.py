"""Errors of redis-py: what a caller gets, and whether anything can have been written."""

from __future__ import annotations

import pytest
from redis import exceptions as theirs

from helix_agents.backends.redis.client.driver_errors import NotReached, TranslatedErrors, is_refusal
from helix_agents.errors import StoreCorrupt, StoreUnavailable


@pytest.mark.parametrize(
    ("error", "nothing_written"),
    [
        (theirs.ConnectionError("reset"), False),
        (theirs.TimeoutError("slow"), False),
        (NotReached("refused"), True),
        (theirs.ReadOnlyError("replica"), True),
        (theirs.BusyLoadingError("loading"), True),
        (theirs.ResponseError("-READONLY You can't write"), True),
        (theirs.ResponseError("ERR unknown command"), False),
    ],
)
def test_an_error_of_the_driver_says_whether_anything_can_have_been_written(
    error: Exception, nothing_written: bool
) -> None:
    with pytest.raises(StoreUnavailable, match="Redis, commit") as raised, TranslatedErrors("commit"):
        raise error
    assert (raised.value.nothing_written, raised.value.__cause__) == (nothing_written, error)


def test_a_key_of_another_type_is_corrupt() -> None:
    with pytest.raises(StoreCorrupt), TranslatedErrors("read"):
        raise theirs.ResponseError("WRONGTYPE Operation against a key")


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), TranslatedErrors("read"):
        raise KeyError
    assert not is_refusal(theirs.ResponseError("ERR"))
