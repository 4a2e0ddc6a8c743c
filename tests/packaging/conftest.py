"""One wheel for all tests of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.environments import build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as ./dev build does."""
    return build(tmp_path_factory.mktemp("dist"))
