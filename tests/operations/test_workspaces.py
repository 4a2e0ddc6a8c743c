"""Snapshots of workspaces as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.backends.registry import open_stores
from helix_agents.errors import InvalidArgument
from helix_agents.operations.cleanup import WorkspaceProvider, expired_session_cleanup
from helix_agents.operations.workspaces import FileWorkspaceProvider


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / "notes").mkdir(parents=True)
    (place / "notes" / "a.txt").write_text("one")
    return place


async def test_a_snapshot_brings_the_files_back(tmp_path: Path, workspace: Path) -> None:
    provider = FileWorkspaceProvider(tmp_path / "kept")
    snapshot = await provider.snapshots.create("s/1 ☃", workspace)
    (workspace / "notes" / "a.txt").write_text("two")
    await provider.snapshots.restore(snapshot, workspace)
    assert (workspace / "notes" / "a.txt").read_text() == "one"
    assert await provider.snapshots.list("s/1 ☃") == [snapshot]
    assert await provider.snapshots.list("other") == []
    await provider.snapshots.delete(snapshot)
    await provider.snapshots.delete(snapshot)
    assert await provider.snapshots.list("s/1 ☃") == []
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("bad", ["", "x", "../x", "a/../../b", "a/b.c", "/etc/passwd"])
async def test_an_id_leads_nowhere_else(tmp_path: Path, workspace: Path, bad: str) -> None:
    snapshots = FileWorkspaceProvider(tmp_path / "kept").snapshots
    with pytest.raises(InvalidArgument):
        await snapshots.delete(bad)
    with pytest.raises(InvalidArgument):
        await snapshots.restore(bad, workspace)


async def test_cleanup_deletes_the_snapshots_of_expired_sessions(tmp_path: Path, workspace: Path) -> None:
    provider = FileWorkspaceProvider(tmp_path / "kept")
    checked: WorkspaceProvider = provider
    async with open_stores("memory:") as stores:
        await stores.state.create_session("old", agent_type="a", expires_at=1)
        await stores.state.create_session("new", agent_type="a")
        for session_id in ("old", "old", "new"):
            await provider.snapshots.create(session_id, workspace)
        dry = await expired_session_cleanup(stores.state, workspace_providers={"files": checked}, dry_run=True)
        assert (dry.detected, dry.snapshots_deleted) == (1, 0)
        summary = await expired_session_cleanup(stores.state, workspace_providers={"files": checked})
    assert (summary.marked, summary.snapshots_deleted, summary.errors) == (1, 2, [])
    assert await provider.snapshots.list("old") == []
    assert len(await provider.snapshots.list("new")) == 1
