"""Record where each tool of a step has written, to find conflicts between tools.

A place is a path up to its first list: a change inside a list concerns the whole list. Values are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Place = tuple[str, ...]


class Touches:
    """The places of all tools."""

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[int, _Tool] = {}

    def forget(self, tool_index: int) -> None:
        """Drop the places of a tool."""
        self._tools.pop(tool_index, None)

    def is_alone(self, tool_index: int) -> bool:
        """Return whether no other tool has written anything."""
        return not self._tools.keys() - {tool_index}

    def add(self, tool_index: int, path: Sequence[str | int], *, ensures: bool) -> bool:
        """Record a write; return whether it conflicts with no write of another tool.

        `ensures`: the write only creates a missing container, which several tools may do.
        """
        place = _place(path)
        free = not any(
            tool.is_in_the_way(place, ensures=ensures) for index, tool in self._tools.items() if index != tool_index
        )
        self._tools.setdefault(tool_index, _Tool()).add(place, ensures=ensures)
        return free


class _Tool:
    """The places of one tool."""

    __slots__ = ("_above", "_places")

    def __init__(self) -> None:
        self._places: dict[Place, bool] = {}
        """Whether the tool only ensured a container there."""
        self._above: set[Place] = set()

    def add(self, place: Place, *, ensures: bool) -> None:
        self._places[place] = ensures and self._places.get(place, True)
        self._above.update(_prefixes(place))

    def is_in_the_way(self, place: Place, *, ensures: bool) -> bool:
        if any(self._places.get(prefix) is False for prefix in _prefixes(place)):
            return True
        there = self._places.get(place)
        if there is not None and not (there and ensures):
            return True
        return place in self._above and not ensures


def _prefixes(place: Place) -> Iterable[Place]:
    return (place[:length] for length in range(len(place)))


def _place(path: Sequence[str | int]) -> Place:
    place: list[str] = []
    for token in path:
        if token.__class__ is int:
            break
        place.append(token)  # type: ignore[arg-type]  # a path has keys and positions
    return tuple(place)
