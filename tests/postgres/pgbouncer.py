"""A real PgBouncer in transaction mode, where its binary is installed: no wheel carries one."""

from __future__ import annotations

import os
import shutil
import socket

from tests.servers.process import HOST, ServerProcess, ServerUnavailable, free_port, unprivileged_user

SERVER_CONNECTIONS = 3

SETTINGS = """
[databases]
any = host={host} port={server_port} dbname={database} user={user}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
"""


def pgbouncer_binary() -> str:
    """Return where the binary is, or `ServerUnavailable`."""
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    found = shutil.which("pgbouncer", path=folders)
    if found is None:
        raise ServerUnavailable("there is no pgbouncer on the PATH or in /usr/sbin; install it to run these tests.")
    return found


class PgBouncer(ServerProcess):
    """Passes every transaction on to another connection of the server, in turn; the database is called `any`."""

    def __init__(self, server_port: int, *, user: str, database: str) -> None:
        self.binary = pgbouncer_binary()
        self.server_port = server_port
        self.server_user = user
        self.database = database
        super().__init__(name="pgbouncer", port=free_port(), user=unprivileged_user())

    def new_port(self) -> int:
        return free_port()

    def command(self) -> list[str]:
        text = SETTINGS.format(
            host=HOST,
            port=self.port,
            server_port=self.server_port,
            database=self.database,
            user=self.server_user,
            connections=SERVER_CONNECTIONS,
        )
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(text, encoding="utf-8")
        return [self.binary, str(settings)]

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=5):
                return True
        except OSError:
            return False
