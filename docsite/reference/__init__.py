"""The reference: pages made from the code, so that they cannot say anything else than it does."""

from __future__ import annotations

from .command_line import command_line_page
from .errors import errors_page
from .http import http_page
from .options import options_page
from .python import python_pages
from .vocabulary import chunks_page, statuses_page


def reference_pages() -> dict[str, str]:
    """Return every generated page: its name below docs/, and its Markdown."""
    return {
        **python_pages(),
        "reference/errors.md": errors_page(),
        "reference/statuses.md": statuses_page(),
        "reference/chunks.md": chunks_page(),
        "reference/command-line.md": command_line_page(),
        "reference/http.md": http_page(),
        "reference/options.md": options_page(),
    }
