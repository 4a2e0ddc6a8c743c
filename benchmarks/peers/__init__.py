"""The same agent in several frameworks. Each runs in an environment of its own and speaks JSON: see `protocol`."""
