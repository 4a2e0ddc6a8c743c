"""Errors of redis-py, and how they become the library's own."""

from __future__ import annotations

from redis import exceptions as redis_errors

from ....errors import StoreCorrupt, StoreUnavailable

LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)
_THEIRS = (TimeoutError, redis_errors.RedisError, redis_errors.RedisClusterException, OSError, EOFError)


class NotReached(redis_errors.ConnectionError):
    """There is no connection to a server, so nothing was sent to it."""


class TranslatedErrors:
    """Turns what a driver raises into our tree. A class: a generator would cost more than some requests."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _THEIRS):
            if "WRONGTYPE" in str(error):
                raise StoreCorrupt(f"Redis, {self._what}: a key holds another kind of value. {error}") from error
            unsent = isinstance(error, NotReached)
            raise StoreUnavailable(f"Redis, {self._what}: {error}", nothing_written=unsent) from error
