"""Redis and Valkey, one server or a cluster: state, streams, usage and memory."""

try:
    import redis.asyncio as _redis  # noqa: F401  # every module in here needs it
except ImportError as missing:  # pragma: no cover - depends on the installation
    raise ImportError("Redis needs redis-py: pip install 'helix-agents[redis]'") from missing
