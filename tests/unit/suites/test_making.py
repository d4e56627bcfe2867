"""What a program makes environments by."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_intercode import BudgetExhausted, make
from pytest_intercode.errors import ConfigurationError


@pytest.mark.parametrize("env", [None, 5])
def test_what_is_not_a_name(env: Any) -> None:
    message = f"make({env}): a name is needed, such as 'bash'"
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        make(env)


def test_an_environment_is_closed_by_its_with() -> None:
    with make("sql") as environment:
        environment.reset()
    with pytest.raises(BudgetExhausted, match=r"the episode is over \(closed\)"):
        environment.step("SELECT 1")
