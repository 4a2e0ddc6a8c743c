"""Safe text: exception messages for logs, models and clients. No credentials of URLs, no control characters in logs.

Exception messages can contain anything that a user, a model or a driver wrote, so a log line must not be able to end
early, forge the next line or move the cursor of a terminal.
"""

from __future__ import annotations

import logging
import re
import traceback
from types import TracebackType

_CREDENTIALS = re.compile(r"(?<=://)([^\s/?#@:]*):[^\s/?#@]+@")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FRAME = re.compile(r'[ |]*File "')

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def without_credentials(text: str) -> str:
    """Return the text with the passwords in its URLs replaced: `postgresql://app:***@db`."""
    return _CREDENTIALS.sub(r"\1:***@", text) if "://" in text else text


def escaped(text: str) -> str:
    """Return the text on one line, with control, bidi and surrogate characters as escapes such as `\\x1b`."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of that name. It escapes its arguments and exceptions."""
    logger = logging.getLogger(name)
    if _make_safe not in logger.filters:
        logger.addFilter(_make_safe)
    return logger


def _make_safe(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(
            escaped(without_credentials(str(each))) if isinstance(each, str | BaseException) else each
            for each in record.args
        )
    if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
        record.exc_text = _safe_traceback(record.exc_info)
    return True


def _safe_traceback(raised: ExcInfo) -> str:
    """Format a traceback in which only the frames, whose lines come from source files, span several lines."""
    parts = traceback.TracebackException(*raised).format()
    return "\n".join(
        part.rstrip("\n") if _FRAME.match(part) else escaped(without_credentials(part.strip("\n"))) for part in parts
    )
