"""What a forked child may do with what its parent has made."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from pytest_intercode.errors import SandboxError
from pytest_intercode.system.forks import MakingProcess, close_in_children


def in_a_child(work: Callable[[], str]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


def test_a_child_is_refused_and_its_parent_is_not() -> None:
    process = MakingProcess("this environment belongs", "one")

    def work() -> str:
        with pytest.raises(SandboxError) as refused:
            process.check()
        return f"{process.is_this} {refused.value}"

    assert in_a_child(work) == (
        "False this environment belongs to the process that this one was forked from; create one "
        "in the process that uses it"
    )
    process.check()
    assert process.is_this


def test_children_close_their_copies_though_one_cannot_be_closed() -> None:
    class Holder:
        closed = False

        def __init__(self, error: bool) -> None:
            self.error = error
            close_in_children(self)

        def close_copies(self) -> None:
            self.closed = True
            if self.error:
                raise OSError("closed before")

    holders = [Holder(number % 2 == 0) for number in range(4)]
    assert in_a_child(lambda: str([holder.closed for holder in holders])) == str([True] * 4)
    assert not any(holder.closed for holder in holders)
