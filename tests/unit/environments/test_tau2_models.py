"""Stand-ins for what tau2-bench's domains import: as strict, and as lax, as the real library."""

from __future__ import annotations

import datetime
import enum
import json
import typing
from typing import Annotated, Any, Literal

import pydantic
import pytest

from pytest_intercode.environments.tau2.inside import models, world

VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        5,
        5.0,
        5.5,
        -1,
        1e30,
        "",
        "5",
        "5.5",
        " 7 ",
        "abc",
        "true",
        "OFF",
    ),
    *("red", "blue", "RED", "2025-03-01", "2025-13-01", "fee", [], ["a"], [1], ["1", 2.5], {}),
    *({"a": 1}, {"kind": "fee", "amount": "3"}, {"kind": "free"}, {"kind": "fee"}, [[]], [{}]),
]


class Color(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


def _declare(library: Any) -> dict[str, Any]:
    """Declare the same models with a library: the real one, or ours."""

    class Fee(library.BaseModel):  # type: ignore[misc]
        kind: Literal["fee"]
        amount: float = library.Field(description="In euros")

    class Free(library.BaseModel):  # type: ignore[misc]
        kind: Literal["free"]

    class Closed(library.BaseModel):  # type: ignore[misc]
        model_config = library.ConfigDict(extra="forbid")
        a: int = 3

    types: dict[str, Any] = {
        "text": str,
        "whole": int,
        "number": float,
        "truth": bool,
        "literal": Literal["red", "blue"],
        "color": Color,
        "day": datetime.date,
        "anything": Any,
        "texts": list[str],
        "numbers": typing.List[float],  # noqa: UP006 - as the domains write it
        "mapping": typing.Dict[str, int],  # noqa: UP006
        "colors": dict[Color, Color],
        "maybe": typing.Optional[int],  # noqa: UP045
        "price": typing.Union[Fee, Free],  # noqa: UP007
        "either": typing.Union[Color, str],  # noqa: UP007
        "closed": Closed,
        "closed_or_mapping": Closed | dict,
        "annotated": Annotated[list[Free], library.Field(description="some")],
    }
    return {
        name: type(name, (library.BaseModel,), {"__annotations__": {"value": hint}})
        for name, hint in types.items()
    }


OURS, THEIRS = _declare(models), _declare(pydantic)


def _try(model: Any, value: Any) -> str:
    try:
        return json.dumps(model(value=value).model_dump(), default=str)
    except ValueError:
        return "refused"


@pytest.mark.parametrize("name", OURS)
def test_values_are_converted_and_refused_alike(name: str) -> None:
    values = [value for value in VALUES if name != "day" or isinstance(value, str)]
    ours = {repr(value): _try(OURS[name], value) for value in values}
    assert ours == {repr(value): _try(THEIRS[name], value) for value in values}


@pytest.mark.parametrize("name", sorted(OURS.keys() - {"day", "colors"}))  # no tool takes one
def test_types_are_described_alike(name: str) -> None:
    definitions: dict[str, Any] = {}
    fields = {"value": (typing.get_type_hints(OURS[name])["value"], models.MISSING, "")}
    ours = models.describe_fields(name, fields, definitions)
    theirs = THEIRS[name].model_json_schema()
    if name == "annotated":
        theirs["properties"]["value"].pop("description")
    assert {**ours, **({"$defs": definitions} if definitions else {})} == theirs


def test_a_docstring_describes_a_tool() -> None:
    def tool(book_id: str, weeks: int = 2) -> str:
        """Renew a loan. It is due later.

        Ask before.

        Args:
            book_id: The number,
                as on its back.
            weeks: How long.

        Returns:
            Something.
        """
        return ""

    assert world._describe_tool("tool", tool) == {
        "name": "tool",
        "description": "Renew a loan. It is due later.\n\nAsk before.",
        "parameters": {
            "properties": {
                "book_id": {
                    "title": "Book Id",
                    "type": "string",
                    "description": "The number,\nas on its back.",
                },
                "weeks": {
                    "title": "Weeks",
                    "type": "integer",
                    "description": "How long.",
                    "default": 2,
                },
            },
            "title": "parameters",
            "type": "object",
            "required": ["book_id"],
        },
    }
