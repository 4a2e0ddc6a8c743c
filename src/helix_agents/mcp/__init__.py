"""Tools of MCP servers: `Agent(tools=[MCP("https://...")])`. Needs the extra `mcp`."""

from .toolset import MCP, mcp_tools

__all__ = ["MCP", "mcp_tools"]
