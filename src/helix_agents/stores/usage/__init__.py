"""The usage store: what a session cost, entry by entry and added up."""

from .contract import CustomEntry, SubagentEntry, TokensEntry, ToolEntry, UsageRollup, UsageStore

__all__ = ["CustomEntry", "SubagentEntry", "TokensEntry", "ToolEntry", "UsageRollup", "UsageStore"]
