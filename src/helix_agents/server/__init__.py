"""The HTTP server: agents over HTTP, SSE and WebSocket, for browsers, phones and other services.

Needs the extra `server`. This package turns requests into calls of an executor and its stores, and chunks into frames;
it decides who may see what. It knows no backend, and it holds nothing that must survive.
"""

try:
    import starlette  # noqa: F401
except ImportError as missing:
    raise ImportError("The server needs starlette: pip install 'helix-agents[server]'", name="starlette") from missing

from .app import HelixApp, create_app
from .auth import Authenticate, User, bearer_tokens

__all__ = ["Authenticate", "HelixApp", "User", "bearer_tokens", "create_app"]
