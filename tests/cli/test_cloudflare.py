"""`helix cloudflare`: the examples are what it writes, and it overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("example", "runtime"), [("worker", "durable-object"), ("workflow", "workflow")])
def test_an_example_is_what_init_writes(tmp_path: Path, example: str, runtime: str) -> None:
    folder = tmp_path / f"helix-{example}"
    assert main(["cloudflare", "init", str(folder), "--runtime", runtime, "--checkout", "../.."]) == 0
    assert contents(folder) == contents(EXAMPLES / example)


def test_a_project_without_a_checkout_uses_the_release(tmp_path: Path) -> None:
    assert main(["cloudflare", "init", str(tmp_path / "My Agent")]) == 0
    text = (tmp_path / "My Agent" / "pyproject.toml").read_text()
    assert 'name = "my-agent"' in text
    assert "tool.uv.sources" not in text


@pytest.mark.parametrize("verb", ["init", "bridge"])
def test_nothing_is_overwritten(tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wrangler.jsonc").write_text("mine")
    assert main(["cloudflare", verb, str(tmp_path)]) != 0
    assert "already has wrangler.jsonc" in capsys.readouterr().err
    assert contents(tmp_path) == {"wrangler.jsonc": "mine"}


def test_the_bridge_comes_with_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cloudflare", "bridge", str(tmp_path / "bridge")]) == 0
    assert sorted(contents(tmp_path / "bridge")) == ["bridge.mjs", "wrangler.jsonc"]
    assert "wrangler deploy" in capsys.readouterr().out
