"""Agents on Cloudflare: in Durable Objects (`AgentServer`) or by Workflows (`CloudflareAgentExecutor`).

`helix_agents.cloudflare` has the public names. Imported only inside a Worker.
"""

from .agent_server import AgentServer
from .agent_workflow import AgentWorkflow
from .routing import route
from .serving import serve
from .workflows import CloudflareAgentExecutor

__all__ = ["AgentServer", "AgentWorkflow", "CloudflareAgentExecutor", "route", "serve"]
