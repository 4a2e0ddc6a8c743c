"""Tools of MCP servers: `Agent(tools=[MCP("https://...")])`. Needs the extra `mcp`."""

try:
    import mcp  # noqa: F401
except ImportError as missing:
    raise ImportError("MCP needs the mcp package: pip install 'helix-agents[mcp]'", name="mcp") from missing

from .toolset import MCP, mcp_tools

__all__ = ["MCP", "mcp_tools"]
