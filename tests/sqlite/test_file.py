"""The database file: readable by its owner only, and never touched if it exists."""

from __future__ import annotations

from pathlib import Path

from helix_agents.backends.sqlite.file import create_private_file


def test_a_new_file_is_private(tmp_path: Path) -> None:
    create_private_file(str(tmp_path / "a.db"))
    assert [(each.name, oct(each.stat().st_mode & 0o777)) for each in tmp_path.iterdir()] == [("a.db", "0o600")]


def test_an_existing_file_keeps_its_mode_and_content(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_text("x")
    path.chmod(0o640)
    create_private_file(str(path))
    assert (path.read_text(), oct(path.stat().st_mode & 0o777)) == ("x", "0o640")


def test_where_no_file_can_be_created_nothing_happens(tmp_path: Path) -> None:
    for path in (":memory:", "", str(tmp_path / "missing" / "a.db")):
        create_private_file(path)
    assert list(tmp_path.iterdir()) == []
