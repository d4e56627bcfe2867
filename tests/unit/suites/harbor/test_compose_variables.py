"""Variables of compose files mean what they mean for Docker Compose."""

from __future__ import annotations

import pytest

from pytest_intercode.suites.harbor.compose_variables import (
    RequiredVariable,
    expand,
    parse_env_file,
)

_VARIABLES = {"SET": "set", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$SET ${SET} $UNSET${UNSET}.", "set set ."),
        ("${UNSET:-a} ${UNSET-a} ${EMPTY:-a} ${EMPTY-a}.", "a a a ."),
        ("${SET:+a} ${SET+a} ${UNSET:+a} ${EMPTY:+a} ${EMPTY+a}", "a a   a"),
        ("${SET:?why} ${EMPTY?why}", "set "),
        ("${UNSET:-${EMPTY:-${SET}s}}!", "sets!"),
        ("${UNSET:-}}", "}"),
        ("$$SET $1 $(SET) ${ ${} $", "$SET $1 $(SET) ${ ${} $"),
    ],
)
def test_a_reference_to_a_variable(text: str, value: str) -> None:
    assert expand({"a": [text, 1, None]}, _VARIABLES) == {"a": [value, 1, None]}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("${UNSET:?give one}", RequiredVariable, "the variable UNSET is needed: give one"),
        ("${EMPTY:?}", RequiredVariable, "the variable EMPTY is needed"),
        ("${UNSET:-" * 20 + "}" * 20, ValueError, "references nested more than 10 deep"),
        ("${UNSET:-" * 100_000, ValueError, "a brace is not closed"),
    ],
)
def test_a_reference_that_is_refused(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        expand(text, _VARIABLES)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("A=1\n\n  # no\nexport B=2\nC: 3\nD", {"A": "1", "B": "2", "C": "3", "D": None}),
        ("A= x y # no\nB=#x\nC=a#b\nD=", {"A": "x y", "B": "#x", "C": "a#b", "D": ""}),
        ("A='$SET # \"'  # no\nB=\"$SET # '\"", {"A": '$SET # "', "B": "set # '"}),
        ('A="a\\n\\"\\\\\\$SET"\nB="two\nlines"', {"A": 'a\n"\\$SET', "B": "two\nlines"}),
        ("A=1\nB=${A}${SET}${UNSET:-x}", {"A": "1", "B": "1setx"}),
        ("# alone", {}),
    ],
)
def test_a_file_of_variables(text: str, pairs: dict[str, str | None]) -> None:
    assert parse_env_file(text, _VARIABLES) == pairs


@pytest.mark.parametrize("text", ['A="x', "A='x' y", "=x", "A b=x", "'A'=x"])
def test_a_line_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="line 2: NAME=VALUE is needed"):
        parse_env_file(f"Z=1\n{text}\n", _VARIABLES)


def test_variables_that_double_are_refused() -> None:
    with pytest.raises(ValueError, match=r"more than 131,072 characters: '\$A\$A'"):
        parse_env_file("A=0123456789\n" + "A=$A$A\n" * 40, {})
