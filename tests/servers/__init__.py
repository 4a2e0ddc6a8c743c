"""Private real servers for tests: started from wheels, on free loopback ports, each in its own folder.

`process.py` starts, stops, kills and restarts one server process; `redis_server.py`, `redis_cluster.py` and
`postgres.py` know one kind of server each; `proxy.py` stands between a client and a server, counts and breaks
things; `fixtures.py` hands all of them to tests. Nothing here knows the package under test.

The launchers block while a server starts or stops: inside a running event loop call them by `asyncio.to_thread`.
"""
