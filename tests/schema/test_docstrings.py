"""Parameter descriptions from docstrings."""

from __future__ import annotations

import enum
from typing import Annotated

import pytest

from helix_agents import tool
from helix_agents.schema.docstrings import split_docstring


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


def test_the_docstring_describes_the_parameters() -> None:
    @tool
    def paint(what: str, color: Color, often: Annotated[int, "How often."] = 1) -> str:
        """Paint something.

        Args:
            what (str): The thing to paint,
                with all its parts.
            color: The color.
            often: Not this, the annotation is closer.

        Returns:
            What was done.
        """
        return what

    properties = paint.spec.input_schema["properties"]
    assert properties["what"]["description"] == "The thing to paint, with all its parts."
    assert properties["often"]["description"] == "How often."
    assert "The color." in str(properties["color"])
    assert paint.description == "Paint something.\n\nReturns:\n    What was done."


@pytest.mark.parametrize(
    ("docstring", "text", "parameters"),
    [
        (None, "", {}),
        ("Do it.", "Do it.", {}),
        (
            "Do it.\n\nArgs:\n    a: One.\n    *b (int): Two:\n        x: 3.",
            "Do it.",
            {"a": "One.", "b": "Two: x: 3."},
        ),
        ("Do it.\n\nParameters:\n    a: One.\n\nReturns:\n    It.", "Do it.\n\nReturns:\n    It.", {"a": "One."}),
        ("Do it. Args: none.", "Do it. Args: none.", {}),
    ],
)
def test_the_section_of_parameters_is_split_off(docstring: str | None, text: str, parameters: dict[str, str]) -> None:
    assert split_docstring(docstring) == (text, parameters)
