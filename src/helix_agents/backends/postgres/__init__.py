"""Postgres on an asyncpg pool: many processes, many sessions at once, streams woken by NOTIFY."""

try:
    import asyncpg as _asyncpg  # noqa: F401  # every module in here needs it
except ImportError as missing:  # pragma: no cover
    raise ImportError("Postgres needs asyncpg: pip install 'helix-agents[postgres]'") from missing
