"""A private Redis Cluster of three masters, with replicas if failover is tested."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import redis
from redis.crc import key_slot

from tests.servers.process import HOST, wait_until
from tests.servers.redis_server import VALKEY_9, RedisServer

MASTER_COUNT = 3
SLOT_COUNT = 16_384


class RedisCluster:
    """Masters first, then their replicas in the same order: `nodes[3]` replicates `nodes[0]`."""

    def __init__(self, kind: str = VALKEY_9, *, replicas: int = 0) -> None:
        self.kind = kind
        self.replicas = replicas
        count = MASTER_COUNT * (1 + replicas)
        # Where there are replicas, a dead node is replaced within about two seconds. Elsewhere nothing is gained by
        # suspecting a node early, and on a busy machine a slow node would count as dead.
        timeout_ms = 1000 if replicas else 60_000
        options = ("--cluster-node-timeout", str(timeout_ms))
        self.nodes = [RedisServer(kind, options=options, cluster=True) for _ in range(count)]

    @property
    def masters(self) -> list[RedisServer]:
        """The nodes that started as masters."""
        return self.nodes[:MASTER_COUNT]

    @property
    def url(self) -> str:
        return f"redis+cluster://{HOST}:{self.nodes[0].port}"

    def start(self) -> None:
        """Start the nodes, assign the slots, connect the nodes, and wait until all agree."""
        for node in self.nodes:
            node.start()
        bounds = [SLOT_COUNT * part // MASTER_COUNT for part in range(MASTER_COUNT + 1)]
        for epoch, node in enumerate(self.nodes, 1):
            # Epochs set by hand avoid conflicts between the nodes.
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node, first, end in zip(self.masters, bounds, bounds[1:], strict=False):
            node.ask("CLUSTER", "ADDSLOTS", *range(first, end))
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", HOST, node.port)
        wait_until(lambda: all(map(self.sees_everyone, self.nodes)), "the cluster to form")
        for index, node in enumerate(self.nodes[MASTER_COUNT:]):
            node.ask("CLUSTER", "REPLICATE", self.masters[index % MASTER_COUNT].ask("CLUSTER", "MYID"))
        wait_until(lambda: all(map(self._follows, self.nodes[MASTER_COUNT:])), "the replicas to follow their masters")
        self.wait_until_healthy()

    def sees_everyone(self, node: RedisServer) -> bool:
        return self._is_ok(node) and f"cluster_known_nodes:{len(self.nodes)}" in node.ask("CLUSTER", "INFO")

    def _is_ok(self, node: RedisServer) -> bool:
        try:
            return "cluster_state:ok" in node.ask("CLUSTER", "INFO")
        except redis.RedisError:
            return False

    def _follows(self, node: RedisServer) -> bool:
        with node.client() as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def wait_until_healthy(self) -> None:
        """Wait until every running node says that all slots are served (after a kill: that a replica took over)."""
        wait_until(lambda: all(map(self._is_ok, self.running())), "the cluster to be healthy")

    def wait_until_promoted(self, node: RedisServer) -> None:
        """Wait until a replica has become a master and the running nodes have settled."""
        wait_until(lambda: self._role(node) == "master", f"the replica on port {node.port} to be promoted")
        self.wait_until_healthy()

    def _role(self, node: RedisServer) -> str:
        with node.client() as client:
            return str(client.info("replication")["role"])

    @contextlib.contextmanager
    def moving_slot(self, key: str, target: RedisServer) -> Iterator[None]:
        """Move the slot of a key: during the block its keys are being moved, after it they are at the target."""
        slot = key_slot(key.encode())
        (source,) = [node for node in self.masters if slot in self._slots_of(node)]
        ids = {node: node.ask("CLUSTER", "MYID") for node in (source, target)}
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        yield
        with source.client() as client:
            while keys := client.execute_command("CLUSTER GETKEYSINSLOT", slot, 1000):
                client.execute_command("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.running()):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    def _slots_of(self, node: RedisServer) -> set[int]:
        own = node.ask("CLUSTER", "MYID")
        lines = [line.split() for line in node.ask("CLUSTER", "NODES").splitlines()]
        ranges = [each for line in lines if line[0] == own for each in line[8:] if not each.startswith("[")]
        bounds = [tuple(map(int, each.split("-"))) for each in ranges]
        return {slot for first, *last in bounds for slot in range(first, (last or [first])[0] + 1)}

    def running(self) -> list[RedisServer]:
        return [node for node in self.nodes if node.is_running]

    def flush(self) -> None:
        for node in self.running():
            if self._role(node) == "master":
                node.flush()

    def stop(self) -> None:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.stop)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
