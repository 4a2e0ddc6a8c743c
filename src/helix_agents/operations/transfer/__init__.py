"""Move sessions between backends: `helix export` and `helix import`, through the contracts only.

A file of JSON lines. Transferred: sessions with all their fields, messages, checkpoints (as changes from one to the
next), runs, references to children, staged calls, usage and memories. Not transferred: streams, which are for live
readers, and values that only the store may set (versions, creation times, checkpoint ids).
"""

from .exporting import Exported, export_sessions
from .importing import Imported, import_sessions

__all__ = ["Exported", "Imported", "export_sessions", "import_sessions"]
