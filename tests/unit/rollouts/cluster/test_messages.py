"""Errors on their way from a node to the driver."""

from __future__ import annotations

import pytest

from pytest_intercode.errors import InfrastructureError, TaskError
from pytest_intercode.rollouts.cluster.messages import error_from, error_of


@pytest.mark.parametrize("printed", ["", "1 failed\n", "x" * 30_000])
def test_an_error_keeps_what_the_tests_printed(printed: str) -> None:
    error = TaskError("gold cannot be verified")
    error.test_output = printed
    received = error_from(error_of(error), "node-1")
    assert isinstance(received, TaskError)
    assert (str(received), received.test_output) == (str(error), printed[:20_000])


def test_an_error_of_another_kind_has_nothing_of_it() -> None:
    received = error_from({**error_of(KeyError("x")), "test_output": "1 failed"}, "node-1")
    assert not isinstance(received, InfrastructureError)
    assert str(received) == "on node node-1: KeyError: 'x'"
