"""Do pieces of work one after the other, each within its time, even if one of them fails.

They are done in a forked child. If a piece ends the child or takes too long, that piece has failed,
and another child, forked from the same state, continues with the next one.
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
_TICKS = os.sysconf("SC_CLK_TCK")  # per second, in the times of /proc


def one_by_one(count: int, work: Callable[[int], str], seconds: float) -> Iterator[str]:
    """Yield the result of ``work`` for each number below ``count``, or why it has none.

    Args:
        count: how many pieces there are.
        work: does one piece; its result must not have line ends.
        seconds: the time for a piece, not counting the time in which it waits for a processor.
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
        os.setsid()  # so that the processes that it starts can be killed with it
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
    used_time = 0.0
    instant, processor_time = time.monotonic(), _activity(child)[1]
    has_ended = False
    while count:
        line, end, rest = buffer.partition(b"\n")
        if end:
            buffer, count, used_time = rest, count - 1, 0.0
            yield line.decode("utf-8", "replace")
            continue
        if len(buffer) > _MAX_ANSWER:
            yield TOO_LONG
            return
        if used_time > seconds:
            yield TIMED_OUT
            return
        # In short steps: if the child dies, another process may keep its end of the pipe open.
        has_data = bool(poll.poll(50))
        earlier_instant, earlier_processor_time = instant, processor_time
        instant = time.monotonic()
        is_runnable, processor_time = _activity(child)
        if is_runnable and not has_data:
            used_time += processor_time - earlier_processor_time
        else:  # it sleeps, or it wakes us with parts of an answer
            used_time += instant - earlier_instant
        if has_data:
            data = os.read(reading, 262144)
            if not data:
                yield DIED
                return
            buffer += data
        else:
            # Only once: a child that was waited for is no longer there to wait for.
            has_ended = has_ended or bool(os.waitpid(child, os.WNOHANG)[0])
            if has_ended and not poll.poll(0):
                yield DIED
                return


def _activity(process: int) -> tuple[bool, float]:
    """Return whether a process runs or waits for a processor, and the seconds that it has run.

    A runnable process may have waited for an unknown time: the kernel's own figure includes neither
    the current wait nor the time that a hypervisor takes. So it is charged the time that it has
    run, and a sleeping process is charged clock time. Without /proc, every process is sleeping.
    """
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123  pathlib is slow to import
            # The second field, the program's name, may itself contain spaces and brackets.
            fields = file.read().rpartition(b") ")[2].split()
        return fields[0] == b"R", (int(fields[11]) + int(fields[12])) / _TICKS
    except (OSError, IndexError, ValueError):
        return False, 0.0


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
