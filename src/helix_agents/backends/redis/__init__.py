"""Redis and Valkey, one server or a cluster: state, streams, usage and memory."""
