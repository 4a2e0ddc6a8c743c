"""What happens to the processes and their connections. The seed decides what comes next, not what it hits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.servers.proxy import Proxy
from tests.soak.targets import Target

WORKERS = 3
PAUSE_SECONDS = (0.1, 0.8)


class Workers:
    """Worker processes, always the same number of them."""

    def __init__(self, url: str) -> None:
        path = os.pathsep.join(entry or os.curdir for entry in sys.path)
        self._nursery: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.worker", url],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pids = [self.fork() for _ in range(WORKERS)]

    def fork(self) -> int:
        """Start one more."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write("\n")
        self._nursery.stdin.flush()
        return int(self._nursery.stdout.readline())

    def send(self, place: int, what: signal.Signals) -> None:
        """Send a signal to one of them."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[place], what)

    def close(self) -> None:
        """End all of them."""
        for place in range(WORKERS):
            self.send(place, signal.SIGKILL)
        self._nursery.communicate()


class Faults:
    """Injects faults, one after the other, and counts them."""

    def __init__(self, target: Target, workers: Workers, rng: random.Random) -> None:
        self._target = target
        self._workers = workers
        self._rng = rng
        self.injected: Counter[str] = Counter()

    async def inject(self, seconds: float) -> None:
        """Inject faults for a while; afterwards everything works again."""
        choices = self._choices()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            while loop.time() < deadline:
                await asyncio.sleep(self._rng.uniform(*PAUSE_SECONDS))
                name, act = self._rng.choice(choices)
                await act()
                self.injected[name] += 1
        finally:
            for proxy in self._target.proxies:
                proxy.heal()
                proxy.delay_seconds = 0

    def _choices(self) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
        choices: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("kill -9", self._kill),
            ("kill -9", self._kill),
            ("SIGSTOP", self._stop),
            ("disk or memory full", self._fill),
        ]
        if self._target.servers:
            choices += [
                ("connections cut", self._cut),
                ("connections refused", self._refuse),
                ("reply lost", self._lose),
                ("half-open connections", self._black_hole),
                ("slow network", self._delay),
                ("server killed", self._restart),
            ]
        return choices

    def _proxy(self) -> Proxy:
        return self._rng.choice(self._target.proxies)

    async def _kill(self) -> None:
        place = self._rng.randrange(WORKERS)
        self._workers.send(place, signal.SIGKILL)
        self._workers.pids[place] = self._workers.fork()

    async def _stop(self) -> None:
        place = self._rng.randrange(WORKERS)
        self._workers.send(place, signal.SIGSTOP)
        await asyncio.sleep(self._rng.uniform(0.3, 2.5))  # often longer than a lease
        self._workers.send(place, signal.SIGCONT)

    async def _cut(self) -> None:
        self._proxy().cut()

    async def _refuse(self) -> None:
        proxy = self._proxy()
        proxy.cut(refuse=True)
        await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        proxy.heal()

    async def _lose(self) -> None:
        self._proxy().lose_reply(after=self._rng.randrange(20))

    async def _black_hole(self) -> None:
        proxy = self._proxy()
        proxy.black_hole()
        await asyncio.sleep(self._rng.uniform(0.2, 2.0))
        proxy.heal()

    async def _delay(self) -> None:
        proxy = self._proxy()
        proxy.delay_seconds = self._rng.uniform(0.01, 0.1)
        await asyncio.sleep(self._rng.uniform(0.3, 1.5))
        proxy.delay_seconds = 0

    async def _restart(self) -> None:
        await self._target.restart(self._rng.choice(self._target.servers))

    async def _fill(self) -> None:
        make_room = await asyncio.to_thread(self._target.fill, list(self._workers.pids))
        await asyncio.sleep(self._rng.uniform(0.1, 0.8))
        await asyncio.to_thread(make_room)
