"""RunChange: which fields of a run a commit changes."""

from __future__ import annotations

import pytest

from helix_agents.codec import Json
from helix_agents.stores.state.commit import RunChange
from helix_agents.types import RunRecord


@pytest.mark.parametrize(("old", "new"), [(True, 1), ({"a": True}, {"a": 1}), ([1], [1.0]), (0.0, -0.0), (None, [])])
def test_values_that_python_calls_equal_still_change(old: Json, new: Json) -> None:
    seen, wanted = RunRecord("r", "s", 1, output=old), RunRecord("r", "s", 1, output=new)
    assert [*RunChange(seen, wanted).changes] == ["output"]


def test_equal_fields_do_not_change() -> None:
    seen, wanted = RunRecord("r", "s", 1, output=[1]), RunRecord("r", "s", 1, output=[1], lease_until=7)
    assert RunChange(seen, wanted).changes == {"lease_until": 7}
