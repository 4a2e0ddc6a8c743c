"""A commit that carries chunks and usage, as one function call: append, record usage, commit.

It calls the three existing functions. The append comes first, because the checkpoint stores the stream position; if a
later part is rejected, the earlier ones are undone.
"""

from __future__ import annotations

import hashlib

from ..sql_shared.queries import with_prefix
from .commit_call import _BETWEEN, _NULL, CommitFunction
from .dialect import qualified
from .functions import BatchFunction, Prepares

_TEXT = """CREATE OR REPLACE FUNCTION {name}(
  {parameters},
  _place int, _after int, _append int[], _a text[], _usage int[], _u text[]
) RETURNS text[] LANGUAGE plpgsql AS $joint$
DECLARE
  _answers text[];
BEGIN
  IF cardinality(_append) > 0 THEN
    _answers := {streams}(_append, _a);
    IF _place > 0 THEN
      _t[_place] := ((_answers[1]::json -> 0 ->> 0)::bigint - _after)::text;
    END IF;
  END IF;
  IF cardinality(_usage) > 0 THEN
    PERFORM {usage}(_usage, _u);
  END IF;
  RETURN array_prepend({commit}({arguments}), _answers);
END $joint$"""


class JointFunction:
    """The function, for one schema and prefix."""

    def __init__(
        self, commit: CommitFunction, streams: BatchFunction, usage: BatchFunction, *, schema: str | None, prefix: str
    ) -> None:
        parts = {"commit": commit.name, "streams": streams.name, "usage": usage.name}
        digest = hashlib.blake2b("".join([_TEXT, *parts.values()]).encode(), digest_size=4).hexdigest()
        self.name = with_prefix(f"__agents_joint_{digest}", prefix)
        self.function_names: tuple[str, ...] = (self.name,)
        self._qualified = qualified(self.name, schema)
        names = {part: qualified(name, schema) for part, name in parts.items()}
        given = commit.parameters
        arguments = ", ".join(each.split()[0] for each in given)
        self._text = _TEXT.format(name=self._qualified, parameters=", ".join(given), arguments=arguments, **names)
        self._count = len(given)

    def call(self, *, as_list: bool) -> str:
        """Return the statement that calls it, with the texts of the commit as one or as a list."""
        last = self._count
        texts = f"${last}" if as_list else f"string_to_array(${last}, chr({ord(_BETWEEN)}), chr({ord(_NULL)}))"
        given = ", ".join(f"${number}" for number in range(1, last))
        kinds = ("", "", "::int[]", "::text[]", "::int[]", "::text[]")
        along = ", ".join(f"${number}{kind}" for number, kind in enumerate(kinds, last + 1))
        return f"SELECT {self._qualified}({given}, {texts}, {along})"

    async def create(self, connection: Prepares) -> None:
        """Create the function, after those that it calls."""
        await connection.execute(self._text)
