"""The public names are exactly these; whoever adds or removes one says so here."""

from __future__ import annotations

import pytest

import helix_agents
from helix_agents import errors


def test_every_public_name_can_be_imported() -> None:
    for name in helix_agents.__all__:
        assert getattr(helix_agents, name) is not None


def test_public_names_are_sorted_and_unique() -> None:
    assert helix_agents.__all__ == sorted(set(helix_agents.__all__))


def test_every_error_is_public_and_in_the_tree() -> None:
    own = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert all(issubclass(each, errors.HelixError) for each in own)
    assert {each.__name__ for each in own} <= set(helix_agents.__all__)
    assert all(each.__name__ in (errors.__doc__ or "") for each in own), "the docstring draws the whole tree"


@pytest.mark.parametrize("name", sorted(helix_agents._ON_DEMAND))
def test_names_that_need_an_extra_are_there_on_demand(name: str) -> None:
    assert getattr(helix_agents, name).__name__ == name
    assert name not in helix_agents.__all__, "a star import must work without extras"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        helix_agents.nonsense  # noqa: B018
