"""Safe text: no credentials, and nothing that forges a log line or moves a cursor."""

from __future__ import annotations

import logging

import pytest

from helix_agents.safe_text import escaped, get_logger, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://app:secret@db/x", "postgresql://app:***@db/x"),
        ("redis://:secret@host and http://u:p@h", "redis://:***@host and http://u:***@h"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("mail me@host", "mail me@host"),
    ],
)
def test_passwords_in_urls_are_hidden(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("plain ünïcödé", "plain ünïcödé"),
    ],
)
def test_control_characters_become_escapes(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_arguments_and_exceptions_of_log_lines_are_made_safe(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("tests.safe_text")
    assert get_logger("tests.safe_text").filters == logger.filters
    message = f"forged\nERROR line at redis://u:{'secret'}@h"  # a traceback shows the next line, not this one
    try:
        raise ValueError(message)
    except ValueError as error:
        logger.error("Failed: %s", error, exc_info=True)
    (record,) = caplog.records
    assert record.getMessage() == "Failed: forged\\nERROR line at redis://u:***@h"
    printed = logging.Formatter().format(record)
    assert "secret" not in printed
    assert printed.splitlines()[-1] == "ValueError: forged\\nERROR line at redis://u:***@h"
