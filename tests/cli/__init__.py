"""Interactive commands: `helix chat`, `helix init`. Those for operators are tested in `tests/operations`."""
