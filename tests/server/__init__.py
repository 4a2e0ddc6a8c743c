"""The HTTP server: a real process, real sockets."""
