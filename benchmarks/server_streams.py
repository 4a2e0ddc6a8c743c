"""SSE clients of one server process: deliveries against a bare Starlette app, delay of a chunk, memory of idle streams.

    ./dev bench server_streams [--clients 1000] [--events 100] [--idle 2000] [--rounds 3]

Clients are plain sockets in this process. Each must get every event once and in order. The bare app sends the same
bytes, prebuilt, one `send` an event; both run in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from urllib.parse import urlsplit

from benchmarks.machine import describe

ID = re.compile(rb"\nid: (\d+)\n")
SENT = re.compile(rb'"sent":(\d+)')
PACED_CLIENTS, PACED_EVENTS, PACE_MS = 100, 150, 20


class Client(asyncio.Protocol):
    """One reader: keeps what it gets, and tells when it saw the first and the last frame."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.body = bytearray()
        self.delays: list[float] = []
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(f"GET /stream/s HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.body += data
        self.delays += [(now - int(sent)) / 1e6 for sent in SENT.findall(data)]
        if not self.opened.done() and b"event: open" in self.body:
            self.opened.set_result(None)
        if not self.ended.done() and b"event: end" in self.body[-200:]:
            self.ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        for future in (self.opened, self.ended):
            if not future.done():
                future.set_exception(error or ConnectionError("closed before its last frame"))


class ServerProcess:
    """A server of `benchmarks.server_app`."""

    def __init__(self, kind: str) -> None:
        command = [sys.executable, "-m", "benchmarks.server_app", kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.netloc = urlsplit(self._line()).netloc

    async def tell(self, command: str) -> str:
        """Send a command; the reply."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return await asyncio.to_thread(self._line)

    async def connect(self, count: int) -> list[Client]:
        """So many clients that all have seen their first frame."""
        host, _, port = self.netloc.partition(":")
        loop = asyncio.get_running_loop()
        clients: list[Client] = []
        for start in range(0, count, 100):
            made = [
                loop.create_connection(lambda: Client(self.netloc), host, int(port))
                for _ in range(min(100, count - start))
            ]
            clients += [client for _, client in await asyncio.gather(*made)]
            await asyncio.gather(*(client.opened for client in clients[start:]))
        return clients

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def server(kind: str) -> Iterator[ServerProcess]:
    started = ServerProcess(kind)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def close(clients: list[Client]) -> None:
    for client in clients:
        for future in (client.opened, client.ended):
            if not future.done():
                future.cancel()
        client.transport.abort()


async def deliveries(kind: str, clients: int, events: int) -> float:
    """Deliveries a second, from the go until everybody has everything."""
    with server(kind) as started:
        readers = await started.connect(clients)
        began = time.perf_counter()
        await started.tell(f"fill {events}")
        if kind == "ours":
            await started.tell("end")
        await asyncio.gather(*(reader.ended for reader in readers))
        taken = time.perf_counter() - began
        for reader in readers:
            numbers = [int(number) for number in ID.findall(bytes(reader.body))]
            assert numbers == list(range(1, events + 1)), "an event was lost, doubled or out of order"
        close(readers)
    return clients * events / taken


async def delay() -> tuple[float, float]:
    """Milliseconds from `write` to a client's socket: median and 99th percentile."""
    with server("ours") as started:
        readers = await started.connect(PACED_CLIENTS)
        await started.tell(f"pace {PACED_EVENTS} {PACE_MS}")
        await started.tell("end")
        await asyncio.gather(*(reader.ended for reader in readers))
        delays = [each for reader in readers for each in reader.delays]
        close(readers)
    return median(delays), quantiles(delays, n=100)[98]


async def idle(count: int) -> tuple[float, float]:
    """Megabytes of a server with so many idle streams, and of the same one without."""
    with server("ours") as started:
        await started.tell("fill 1")
        before = float(await started.tell("memory"))
        readers = await started.connect(count)
        after = float(await started.tell("memory"))
        close(readers)
    return before, after


async def main(given: argparse.Namespace) -> None:
    print(describe())
    ratios = []
    for _ in range(given.rounds):
        mine = await deliveries("ours", given.clients, given.events)
        theirs = await deliveries("bare", given.clients, given.events)
        ratios.append(mine / theirs)
        print(f"{given.clients} clients x {given.events} events: {mine:,.0f}/s, bare app {theirs:,.0f}/s")
    p50, p99 = await delay()
    before, after = await idle(given.idle)
    figures = {
        "ratio_to_bare_app": round(median(ratios), 2),
        "delay_ms_p50": round(p50, 2),
        "delay_ms_p99": round(p99, 2),
        "idle_streams": given.idle,
        "idle_mb": round(after, 1),
        "kb_a_stream": round((after - before) * 1024 / given.idle, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(parser.parse_args()))
