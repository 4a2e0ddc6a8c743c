"""DeferredCall: its token and URL need what only the executor can give."""

from __future__ import annotations

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.tools.deferred import DeferredCall


def test_a_call_has_a_token_and_a_url_if_the_executor_gave_them() -> None:
    call = DeferredCall("s", "c", None, "signed", "https://example.org/api")
    assert (call.token, call.url) == ("signed", "https://example.org/api/hooks/signed")


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InvalidArgument, match="secret="):
        _ = DeferredCall("s", "c", None).token
    with pytest.raises(InvalidArgument, match="public_url="):
        _ = DeferredCall("s", "c", None, "signed").url
    with pytest.raises(InvalidArgument, match="secret="):
        _ = DeferredCall("s", "c", None, None, "https://example.org").url
