"""Does pieces of work one after the other, each within its time, whatever becomes of one of them.

They are done in a forked child. When a piece ends the child, or takes too long, that piece has
failed, and another child, forked from the same state, goes on behind it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DIED", "TIMED_OUT", "TOO_LONG", "one_by_one"]

DIED, TIMED_OUT, TOO_LONG = '"died"', '"timed out"', '"too long"'
_MAX_ANSWER = 8 * 1024**2  # bytes of one answer


def one_by_one(count: int, work: Callable[[int], str], seconds: float) -> Iterator[str]:
    """Yield what ``work`` returns for each number below ``count``, or a word for why it did not.

    Args:
        count: how many pieces there are.
        work: does one piece; what it returns has no line ends.
        seconds: the time that a piece has, besides that in which it waits for a processor.
    """
    finished = 0
    while finished < count:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _work(range(finished, count), work, writing)
        os.close(writing)
        try:
            for answer in _answers(reading, child, count - finished, seconds):
                finished += 1
                yield answer
        finally:
            os.close(reading)
            _end(child)


def _work(numbers: range, work: Callable[[int], str], writing: int) -> None:
    try:
        os.setsid()  # so that all that it starts can be killed with it
        for number in numbers:
            data = work(number).encode() + b"\n"
            while data:
                data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _answers(reading: int, child: int, count: int, seconds: float) -> Iterator[str]:
    """Yield answers until there are ``count``, or until one is missing."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    buffer = b""
    limit = time.monotonic() + seconds - _waited(child)
    while count:
        line, end, rest = buffer.partition(b"\n")
        if end:
            buffer, count = rest, count - 1
            limit = time.monotonic() + seconds - _waited(child)
            yield line.decode("utf-8", "replace")
            continue
        if len(buffer) > _MAX_ANSWER:
            yield TOO_LONG
            return
        instant = time.monotonic()
        if instant > limit and instant > limit + _waited(child):
            yield TIMED_OUT
            return
        # In short steps: someone else may hold the other end of a child that has died.
        if poll.poll(50):
            data = os.read(reading, 262144)
            if not data:
                yield DIED
                return
            buffer += data
        elif os.waitpid(child, os.WNOHANG)[0] and not poll.poll(0):
            yield DIED
            return


def _waited(process: int) -> float:
    """Return the seconds in which a process could have run, and others did; 0 if nobody knows."""
    try:
        with open(f"/proc/{process}/schedstat") as file:  # noqa: PTH123  pathlib is slow to import
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _end(child: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except OSError:
            pass
    try:
        os.waitpid(child, 0)
    except OSError:
        pass
