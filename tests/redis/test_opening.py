"""Opening by address on a real server: every form of the URL, and unknown options."""

from __future__ import annotations

import pytest

from helix_agents import InvalidArgument, open_stores


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
async def test_every_usual_scheme_opens(valkey: str, scheme: str) -> None:
    async with open_stores(f"{scheme}:{valkey.partition(':')[2]}?prefix=opening&socket_timeout=30") as stores:
        assert not await stores.state.session_exists("s")


@pytest.mark.parametrize("option", ["foo=1", "ssl_ca_certs=x", "max_connections=none", "prefix=:", "protocol=nine"])
async def test_a_refused_option_is_an_error_of_ours(valkey: str, option: str) -> None:
    with pytest.raises(InvalidArgument):
        async with open_stores(f"{valkey}?{option}"):
            pass


async def test_an_unknown_option_names_the_known_ones(valkey: str) -> None:
    with pytest.raises(InvalidArgument, match=r"Unknown option 'foo' .*Known options: .*max_chunks, .*prefix"):
        async with open_stores(f"{valkey}?foo=1"):
            pass
