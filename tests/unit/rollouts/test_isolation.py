"""What an agent changes in the process is set back."""

from __future__ import annotations

import warnings

from pytest_intercode.rollouts.isolation import isolated


def test_filters_of_warnings_are_set_back_and_not_reported() -> None:
    """Or an agent could turn the warning about what it left into a failure of the item."""
    before = list(warnings.filters)
    with isolated() as left:
        warnings.simplefilter("error")
    assert list(warnings.filters) == before
    assert left == []
