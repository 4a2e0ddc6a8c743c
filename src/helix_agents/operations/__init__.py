"""Maintenance of stores: cleanup, verification, export and import."""

from .cleanup import WorkspaceProvider, expired_session_cleanup

__all__ = ["WorkspaceProvider", "expired_session_cleanup"]
