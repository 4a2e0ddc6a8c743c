"""Reject what every other store rejects: strings that JSON cannot encode.

Other stores encode everything they write. Here values stay as they are, so they are encoded for the error only.
"""

from __future__ import annotations

import msgspec

from ...codec import encode
from ...stores.state.commit import Commit


def ensure_storable(*values: object) -> None:
    """Raise `NotSerializable` for a value that other stores cannot store."""
    encode(msgspec.to_builtins(values))


def ensure_storable_commit(commit: Commit) -> None:
    """Raise `NotSerializable` if a commit contains anything that other stores cannot store."""
    custom, change = commit.custom, commit.change_run
    names = [*custom.drop_keys, *custom.append]
    for key, content in custom.set_keys.items():
        names += [key, *(name for name, _ in content.members)]
    for cell in (*custom.set_cells, *custom.drop_cells):
        names += [cell.key, str(cell.slot)]
    state = None if commit.state is None else msgspec.structs.replace(commit.state, custom_state=None)
    ensure_storable(names, state, commit.flag, commit.refs, commit.run, None if change is None else change.wanted)
