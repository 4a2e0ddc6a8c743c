"""Translate errors of redis-py into the library's own."""

from __future__ import annotations

from redis import exceptions as redis_errors

from ....errors import StoreCorrupt, StoreUnavailable

LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)
REFUSED = (redis_errors.ResponseError, redis_errors.BusyLoadingError)
"""Replies by which a server rejects a command, temporarily or for good."""
_THEIRS = (TimeoutError, redis_errors.RedisError, redis_errors.RedisClusterException, OSError, EOFError)


_REFUSED_FOR_NOW = (
    redis_errors.AskError,  # also MOVED
    redis_errors.BusyLoadingError,
    redis_errors.ClusterDownError,  # also MASTERDOWN
    redis_errors.ExecAbortError,
    redis_errors.ReadOnlyError,
    redis_errors.TryAgainError,
)
_IN_A_SCRIPT = "-READONLY "
"""How a Redis 6 script fails at its first write if a replica has taken the master's place."""


def is_refusal(error: BaseException) -> bool:
    """Return whether a server rejected a request temporarily: nothing was done, and the request may be sent again.

    Another server has the keys, or this one cannot serve them yet, or no longer.
    """
    return isinstance(error, _REFUSED_FOR_NOW) or (isinstance(error, REFUSED) and _IN_A_SCRIPT in str(error))


class NotReached(redis_errors.ConnectionError):
    """No connection to a server could be made, so nothing was sent."""


class TranslatedErrors:
    """Translates what a driver raises. A class, because a generator would cost more than some requests."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _THEIRS):
            if "WRONGTYPE" in str(error):
                raise StoreCorrupt(f"Redis, {self._what}: a key holds another kind of value. {error}") from error
            undone = isinstance(error, NotReached) or is_refusal(error)
            raise StoreUnavailable(f"Redis, {self._what}: {error}", nothing_written=undone) from error
