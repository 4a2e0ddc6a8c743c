"""The demo does what it says: killed, finished by others, and equal to an undisturbed run."""

from __future__ import annotations

import io
from pathlib import Path

from helix_agents.demo.show import demo


async def test_the_demo_survives_a_kill_and_an_approval(tmp_path: Path) -> None:
    out = io.StringIO()
    assert await demo(f"sqlite:{tmp_path / 'demo.db'}", out) == 0
    shown = out.getvalue()
    assert "kill -9" in shown
    assert "a person agrees to publish" in shown
    assert "search 3x" in shown
    assert "Transcript and state equal those of an undisturbed run." in shown
