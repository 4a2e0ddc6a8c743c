"""What every test may use: private real servers (see `tests/servers`)."""

pytest_plugins = ["tests.servers.fixtures"]
