"""Sessions out of one backend and into another: `helix export` and `helix import`, through the contracts alone.

A file of JSON lines. What is carried over: sessions with all their fields, messages, checkpoints (as the change from
one to the next), runs, notes of children, staged calls, usage and memories. What is not: streams, which are for those
who watch now, and what only the store itself may set (versions, times of creation, ids of checkpoints).
"""

from .exporting import Exported, export_sessions
from .importing import Imported, import_sessions

__all__ = ["Exported", "Imported", "export_sessions", "import_sessions"]
