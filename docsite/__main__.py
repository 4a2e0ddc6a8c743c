"""Build the site: `./dev docs`, or `python -m docsite [FOLDER]`.

Copies the pages of docs/, adds the reference made from the code, and lets Sphinx turn them into HTML with a search that
needs no server. Broken links and other warnings are errors. `llms.txt` and `llms-full.txt` are for language models.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

from .llms import full_text, outline
from .navigation import read_navigation, with_toctrees
from .reference import reference_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXPLICIT_ANCHOR = re.compile(r'<a id="([^"]+)"></a>(\*\*[^*]+\*\*)')
DEFAULT_TARGET = ROOT / ".cache" / "site"


def write_sources(folder: Path) -> None:
    """Put all pages, written and generated, into a folder."""
    shutil.copytree(DOCS, folder, dirs_exist_ok=True)
    for name, text in reference_pages().items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "CHANGELOG.md", folder / "changelog.md")
    for page in [*folder.rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        page.write_text(_with_site_links(text, page.relative_to(folder)), encoding="utf-8")
    index = folder / "index.md"
    index.write_text(with_toctrees(index.read_text(encoding="utf-8")), encoding="utf-8")


def _with_site_links(text: str, page: Path) -> str:
    """Return a page with anchors and links as Sphinx reads them. The changelog lies beside the pages there."""
    text = EXPLICIT_ANCHOR.sub(r"[\2]{#\1}", text)
    if page.name == "changelog.md":
        return text.replace("](docs/", "](")
    return text.replace("](../CHANGELOG.md", "](changelog.md")


def build(target: Path) -> int:
    """Build everything into `target`; return Sphinx's exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch) / "docs"
        write_sources(sources)
        options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(Path(scratch) / "doctrees")]
        code = build_main([*options, "-c", str(Path(__file__).parent), str(sources), str(target)])
        navigation = read_navigation((DOCS / "index.md").read_text(encoding="utf-8"))
        (target / "llms.txt").write_text(outline(navigation, sources), encoding="utf-8")
        (target / "llms-full.txt").write_text(full_text(navigation, sources), encoding="utf-8")
    return code


def main(arguments: list[str]) -> int:
    """Build into the folder that is given, else under .cache."""
    target = Path(arguments[0]).resolve() if arguments else DEFAULT_TARGET
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    code = build(target)
    if code == 0:
        print(f"Open {target / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
