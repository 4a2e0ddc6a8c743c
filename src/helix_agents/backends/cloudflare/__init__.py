"""Cloudflare: D1 and Durable Objects, from inside a Python Worker and from anywhere else.

Inside: `d1.py` on `env.DB`, `durable_object.py` on `ctx.storage`, `sockets.py` for its WebSockets.
Outside: `rest.py` (D1's own API) and `bridge.py` (a Worker of ours, `bridge_worker/`), `streams.py` on top of it.
"""
