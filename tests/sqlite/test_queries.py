"""Named statements: prefixes of tables, and the words of one dialect."""

from __future__ import annotations

import pytest

from helix_agents.backends.sql_shared.queries import Queries, with_prefix
from helix_agents.errors import InvalidArgument

PACKAGE = "helix_agents.backends.sql_shared.streams"


def test_every_statement_has_a_name_and_no_comment() -> None:
    queries = Queries("stream_queries", "sqlite", package=PACKAGE)
    assert len(list(queries.names())) > 5
    assert not any("--" in text or text.endswith(";") for text in queries.texts.values())
    name = next(iter(queries.names()))
    assert queries(name, 1).params == (1,)


def test_a_dialect_may_say_some_statements_in_its_own_words() -> None:
    sqlite, postgres = (Queries("stream_queries", each, package=PACKAGE) for each in ("sqlite", "postgres"))
    assert set(sqlite.names()) <= set(postgres.names())
    assert postgres.own_names
    assert not sqlite.own_names


def test_a_prefix_is_part_of_every_table_name() -> None:
    assert with_prefix("SELECT 1 FROM __agents_states", "app") == "SELECT 1 FROM app__agents_states"
    assert with_prefix("SELECT 1 FROM __agents_states", "") == "SELECT 1 FROM __agents_states"


@pytest.mark.parametrize("prefix", ["App", "1a", "a-b", "a; DROP", "x" * 40])
def test_a_prefix_that_is_not_an_identifier_is_rejected(prefix: str) -> None:
    with pytest.raises(InvalidArgument, match="prefix"):
        with_prefix("", prefix)
