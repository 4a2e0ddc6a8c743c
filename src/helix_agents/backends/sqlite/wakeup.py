"""Wake-ups between processes on one SQLite file: each has a datagram socket in a folder beside the file.

A process that has readers binds a Unix datagram socket in `<file>-wakeup/`. A process that commits to a stream sends
the stream's id to every socket in there. No process waits for another, nothing touches the disk, and an idle reader
costs nothing.

A datagram may be lost (a full queue, a container with another file system), so each listener also checks twice a second
whether the database's files have changed since: two `stat` calls. If no socket can be bound at all, it checks every
20 ms. The socket of a process that died is removed by the first process that finds it dead.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ...streams import loops
from ...streams.wakeup import Wake, Wakeup

LOOK_EVERY_SECONDS = 0.5
LOOK_OFTEN_SECONDS = 0.02
RESEND_SECONDS = 0.002
MAX_RESENDS = 200
SETTLED_NS = 50_000_000
"""The coarsest resolution of file times: a file changed more recently than this may have changed again unnoticed."""

MAX_SOCKET_PATH = 100
MAX_DATAGRAM = 4096
_NAME_LENGTH = 24


class SqliteWakeup(Wakeup):
    """The wake-up source of one manager on the file at `path`."""

    def __init__(self, path: str | Path) -> None:
        self._path = os.path.realpath(path)
        self._folder = _folder(self._path)
        self._wake: Wake | None = None
        self._socket: socket.socket | None = None
        self._socket_path = ""
        self._sender: socket.socket | None = None
        self._peers: list[str] = []
        self._peers_at = -1
        self._unsent: dict[str, set[str]] = {}
        self._resends = 0
        self._watching: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self, wake: Wake) -> None:
        self._wake = wake
        try:
            self._bind()
        except OSError:
            self._socket = None  # no room for a socket here: look at the files often instead
        self._loop = loop = asyncio.get_running_loop()
        if self._socket is not None:
            loop.add_reader(self._socket, self._receive)
        self._watching = loop.create_task(self._watch_files())

    def announce(self, stream_id: str) -> None:
        for peer in self._current_peers():
            if peer in self._unsent:
                self._unsent[peer].add(stream_id)
            elif not self._send(peer, stream_id):
                self._unsent[peer] = {stream_id}
                self._resend_later()

    async def close(self) -> None:
        if self._watching is not None:
            loops.cancel(self._watching)
        if self._socket is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._socket)  # its own loop, also where another one closes it
            self._socket.close()
            self._socket = None
            _remove(self._socket_path)
            with suppress(OSError):  # others still listen in there
                os.rmdir(self._folder)
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    # -- hearing

    def _bind(self) -> None:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.setblocking(False)
        path = os.path.join(self._folder, f"{os.getpid():x}-{secrets.token_hex(4)}")
        try:
            for attempt in range(10):
                os.makedirs(self._folder, exist_ok=True)
                try:
                    bound.bind(path)
                    break
                except FileNotFoundError:
                    # The last listener that left has just removed the folder.
                    if attempt == 9:
                        raise
        except BaseException:
            bound.close()
            raise
        self._socket, self._socket_path = bound, path

    def _receive(self) -> None:
        seen: set[str] = set()
        while self._socket is not None:
            try:
                seen.add(self._socket.recv(MAX_DATAGRAM).decode(errors="replace"))
            except OSError:
                break  # nothing left
        for stream_id in seen:
            if self._wake is not None:
                self._wake(stream_id)

    async def _watch_files(self) -> None:
        seen = self._files()
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS if self._socket is not None else LOOK_OFTEN_SECONDS)
            now = self._files()
            if now != seen and self._wake is not None:
                self._wake(None)
            seen = now

    def _files(self) -> tuple[int, ...]:
        """Return a value that changes with every write to the database, and for a moment after it."""
        found: list[int] = []
        for name in (self._path + "-wal", self._path):
            try:
                status = os.stat(name)
            except OSError:
                continue
            found += [status.st_mtime_ns, status.st_size]
        if found and time.time_ns() - max(found[::2]) < SETTLED_NS:
            found.append(time.monotonic_ns())
        return tuple(found)

    # -- telling

    def _current_peers(self) -> list[str]:
        try:
            changed_at = os.stat(self._folder).st_mtime_ns
        except OSError:
            return []  # no process has ever listened here
        if changed_at != self._peers_at:
            try:
                names = os.listdir(self._folder)
            except OSError:
                return []
            paths = [os.path.join(self._folder, name) for name in names]
            self._peers = [path for path in paths if path != self._socket_path]
            settled = time.time_ns() - changed_at > SETTLED_NS
            self._peers_at = changed_at if settled else -1
        return self._peers

    def _send(self, peer: str, stream_id: str) -> bool:
        """Send one datagram; return False if the peer's queue is full."""
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        try:
            self._sender.sendto(stream_id.encode(), peer)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                return False
            if error.errno == errno.ECONNREFUSED:
                _remove(peer)  # its process has died
            self._peers_at = -1
        return True

    def _resend_later(self) -> None:
        if self._resends == 0:
            self._resends = MAX_RESENDS
            asyncio.get_running_loop().call_later(RESEND_SECONDS, self._resend)

    def _resend(self) -> None:
        for peer, stream_ids in list(self._unsent.items()):
            while stream_ids and self._send(peer, next(iter(stream_ids))):
                stream_ids.pop()
            if not stream_ids:
                del self._unsent[peer]
        self._resends -= 1
        if self._unsent and self._resends > 0 and self._sender is not None:
            asyncio.get_running_loop().call_later(RESEND_SECONDS, self._resend)
        else:
            self._resends = 0
            self._unsent.clear()  # a process that does not listen at all must look at the files when it wakes up


def _folder(path: str) -> str:
    beside = path + "-wakeup"
    if len(os.fsencode(beside)) + _NAME_LENGTH <= MAX_SOCKET_PATH:
        return beside
    # The name of a socket must be short; every process that knows the file finds this folder too.
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"helix-{digest}-wakeup")


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
