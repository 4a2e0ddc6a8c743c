"""Release files: workflows, container, templates. They are linted, because tests cannot run them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT

SCHEMAS = {
    "vendor.github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.github-issue-forms": [ROOT / ".github" / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "idea.yml")],
    "vendor.github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.compose-spec": [ROOT / "deploy" / "compose.yaml"],
}


def lint(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{program} has no wheel for this machine")
    return subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_schema(schema: str) -> None:
    assert SCHEMAS[schema]
    done = lint("check-jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema]))
    assert done.returncode == 0, done.stdout


def test_workflows_hand_out_no_rights_and_pin_what_they_run() -> None:
    done = lint("zizmor", "--offline", "--no-progress", "--pedantic", ".github")
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_has_no_faults() -> None:
    done = lint("hadolint", "deploy/Dockerfile")
    assert done.returncode == 0, done.stdout


def test_the_threat_model_names_tests_that_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in page.splitlines()
        if line.startswith("| ") and "`" in line.rpartition("|")[0].rpartition("|")[2]
    ]
    named = [name for row in rows for name in re.findall(r"`([^`]+\.py)`", row)]
    assert len(rows) >= 9
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_skill_file_says_when_to_use_it() -> None:
    head = (ROOT / "skills" / "helix-agents" / "SKILL.md").read_text(encoding="utf-8").split("---")[1]
    fields = dict(line.split(": ", 1) for line in head.strip().splitlines())
    assert fields["name"] == "helix-agents"
    assert 50 < len(fields["description"]) < 1024
