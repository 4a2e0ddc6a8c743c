"""Every Python block in README.md and docs/ runs.

The blocks of one page are one program, in order, in a fresh process and an empty folder, and then once more in the same
folder; `await` is allowed at the top level, as in the asyncio REPL. A block after the line `<!-- not run: reason -->`
is left out. Of a block of `diff`, the side after the change runs. A block with a file name (```python ask.py) is that
file; it runs as `python ask.py` if it calls `asyncio.run`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "skills").rglob("*.md"))]
ROOT_PAGES = sorted(ROOT.glob("*.md"))
LIMIT_SECONDS = 400

BLOCK = re.compile(
    r"(?P<skip><!--\s*not run:\s*\S[^>]*-->\s*\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>python|diff)[ ]*(?P<file>[^\n]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
START = "import runpy, sys; sys.path.insert(0, ''); runpy.run_path({!r}, run_name='__main__')"
RUNNER = """
import ast, asyncio, inspect, sys
name, path = sys.argv[1:]
code = compile(open(path, encoding="utf-8").read(), name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
module = type(sys)("__main__")
sys.modules["__main__"] = module
answer = eval(code, module.__dict__)
if inspect.iscoroutine(answer):
    asyncio.run(answer)
"""


def program_of(page: str) -> str:
    """Return the blocks of a page as one program whose line numbers are those of the page."""
    lines = [""] * (page.count("\n") + 1)
    for block in BLOCK.finditer(page):
        if block["skip"]:
            continue
        first = page.count("\n", 0, block.start("code"))
        if block["file"]:
            lines[first] = START.format(block["file"]) if "asyncio.run(" in block["code"] else ""
            continue
        for number, line in enumerate(block["code"].splitlines(), first):
            text = line.removeprefix(block["indent"])
            lines[number] = text if block["language"] == "python" else line_after(text)
    return "\n".join(lines)


def files_of(page: str) -> dict[str, str]:
    """Return the blocks that are files of their own."""
    return {block["file"]: block["code"] for block in BLOCK.finditer(page) if block["file"] and not block["skip"]}


def line_after(line: str) -> str:
    """Return a line of a diff as it is afterwards; what the diff removes is an empty line."""
    return "" if line.startswith(("-", "+++")) else line[1:]


def run_page(name: str, page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = folder / "page.py"
    program.write_text(program_of(page), encoding="utf-8")
    place = folder / "empty"
    place.mkdir(exist_ok=True)
    for file, code in files_of(page).items():
        (place / file).write_text(code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-c", RUNNER, name, str(program)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_blocks_of_a_page_run(path: Path, tmp_path: Path) -> None:
    for time in ("first", "second"):  # in the same folder: people run an example more than once
        done = run_page(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"), tmp_path)
        assert done.returncode == 0, f"the {time} time: {done.stderr}"


def test_blocks_share_names_and_may_await(tmp_path: Path) -> None:
    page = "Hi\n```python\nimport asyncio\nx = 1\n```\nand\n```python\nawait asyncio.sleep(0)\nprint(x + 1)\n```\n"
    assert run_page("page.md", page, tmp_path).stdout == "2\n"


def test_a_failing_block_fails_with_the_line_of_the_page(tmp_path: Path) -> None:
    done = run_page("page.md", "# Title\n\n- item\n\n  ```python\n  1 / 0\n  ```\n", tmp_path)
    assert done.returncode != 0
    assert '"page.md", line 6' in done.stderr


def test_the_new_side_of_a_diff_runs(tmp_path: Path) -> None:
    page = "```diff\n--- before\n+++ after\n for x in [1]:\n-    print('old')\n+    print('new')\n```\n"
    assert run_page("page.md", page, tmp_path).stdout == "new\n"


def test_a_block_with_a_name_is_a_file(tmp_path: Path) -> None:
    module = "```python app.py\nname = 'Ann'\n```\n"
    code = "import asyncio\nfrom app import name\n\nasync def main(): print(name)\nasyncio.run(main())\n"
    script = f"```python go.py\n{code}```\n"
    assert run_page("page.md", module + script, tmp_path).stdout == "Ann\n"
    assert "go.py" in run_page("page.md", module + script.replace("import name", "import x"), tmp_path).stderr


def test_a_block_with_a_reason_is_left_out(tmp_path: Path) -> None:
    page = "<!-- not run: needs a key -->\n```python\n1 / 0\n```\n\n```python\nprint('ran')\n```\n"
    assert run_page("page.md", page, tmp_path).stdout == "ran\n"


def test_a_block_without_a_reason_is_not_left_out(tmp_path: Path) -> None:
    assert run_page("page.md", "<!-- not run: -->\n```python\n1 / 0\n```\n", tmp_path).returncode != 0


def test_the_first_example_completes_every_time(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    ends = [run_page("README.md", page, tmp_path).stdout.splitlines()[-1] for _ in range(2)]
    assert [end.split()[0] for end in ends] == ["completed", "completed"]


GENERATED = ("reference/", "changelog.md")
"""Pages that exist only on the site."""

LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")


def anchors_of(page: str) -> set[str]:
    """Return the anchors of a page: its headings, as GitHub names them, and explicit anchors."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)">', page))


@pytest.mark.parametrize("path", [*PAGES, *ROOT_PAGES[1:]], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in LINK.finditer(path.read_text(encoding="utf-8")):
        if path.parent.name == "docs" and link["file"].startswith(GENERATED):
            continue  # the build of the site follows these
        target = path.parent / link["file"] if link["file"] else path
        anchor = link["anchor"]
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text(encoding="utf-8"))):
            broken.append(link[0])
    assert not broken


def test_the_index_leads_to_every_page() -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [name for name in sorted(pages) if f"({name})" not in page] == []
    assert "(docs/index.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
