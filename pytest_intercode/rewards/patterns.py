"""Applies the regular expressions that a suite declares to outputs, within a time limit.

The agent writes the output, and can make a text on which a pattern takes too long. Python's ``re``
cannot be interrupted, so one process does this for all episodes, and it is ended when its time is
up, by the kernel where possible. It is started when it is first needed, and reads and writes
nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import signal
import subprocess
import sys
import threading

from pytest_intercode.errors import PatternTooSlow
from pytest_intercode.system.platform import run_in_children

__all__ = ["SECONDS", "substitute"]

SECONDS = 2.0
"""CPU seconds that one pattern has for one output; usual patterns take a thousandth of it."""

_MAX_MEMORY = 1024**3  # bytes of the process
_MEMORY_INTERVAL = 0.02  # CPU seconds between checks, where the kernel does not limit memory
_MAX_TRIES = 2  # the process may be killed by others
_HAS_TIMER = hasattr(signal, "setitimer")  # Windows has none, and no memory limit either
_ANSWER_TIMEOUT = 5 * SECONDS  # seconds for an answer, where CPU time cannot be limited
_PROGRAM = f"""
import json, os, re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
timed = "timed" in sys.argv
if timed:
    import resource
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        resource.setrlimit(resource.RLIMIT_AS, ({_MAX_MEMORY}, {_MAX_MEMORY}))
    except ValueError:  # macOS refuses it
        def check_memory(*_):
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if used * (1 if sys.platform == "darwin" else 1024) > {_MAX_MEMORY}:
                os._exit(1)
        signal.signal(signal.SIGVTALRM, check_memory)  # re runs it, too, while it matches
        signal.setitimer(signal.ITIMER_VIRTUAL, {_MEMORY_INTERVAL}, {_MEMORY_INTERVAL})
for line in sys.stdin:
    pattern, replace, text = json.loads(line)
    if timed:
        signal.setitimer(signal.ITIMER_PROF, {SECONDS})
    text = re.sub(pattern, replace, text, flags=re.MULTILINE)
    if timed:
        signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(text), flush=True)
"""
_OUT_OF_MEMORY = 1  # the exit status of Python


class _Process:
    """The process that applies patterns for this process; a forked child starts its own.

    Args:
        timed: whether the kernel ends it; otherwise this process does, by wall-clock time.
    """

    def __init__(self, timed: bool = _HAS_TIMER) -> None:
        self._timed = timed
        self._late = False  # whether this process killed it
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._parents: subprocess.Popen[str] | None = None

    def ask(self, request: str) -> str:
        """Send a line and return the answer.

        Raises:
            PatternTooSlow: there is no answer.
        """
        with self._lock:
            status: int | None = None
            for _ in range(_MAX_TRIES):
                answer = self._exchange(request)
                if answer.endswith("\n"):
                    return answer
                status = self._end()
                # Windows has neither this timer nor its signal.
                timer_signal = getattr(signal, "SIGPROF", 0)
                if self._late or status in (-timer_signal, _OUT_OF_MEMORY):
                    raise PatternTooSlow(f"takes more than {SECONDS:g} s")
            raise PatternTooSlow(f"cannot be applied: its process ended with status {status}")

    def _exchange(self, request: str) -> str:
        process = self._process
        if process is None:
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *(["timed"] if self._timed else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="ascii",
            )
        assert process.stdin
        assert process.stdout
        self._late = False
        timer: threading.Timer | None = None
        if not self._timed:
            timer = threading.Timer(_ANSWER_TIMEOUT, self._kill_late, [process])
            timer.start()
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        except OSError:
            return ""
        except BaseException:  # its answer must not be taken for that to the next request
            process.kill()
            self._end()
            raise
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()  # one that has just fired must not end the next request

    def _kill_late(self, process: subprocess.Popen[str]) -> None:
        self._late = True
        process.kill()

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        return process.wait()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """Leave the process to the parent of this forked child."""
        if self._process is not None:
            self._process.returncode = 0  # otherwise subprocess would wait for it here
            self._parents = self._process  # kept, so that no half-sent request is flushed here
        self._process = None
        self._lock = threading.Lock()


_process = _Process()
atexit.register(_process.close)
run_in_children(_process.forget)


def substitute(pattern: str, replace: str, text: str) -> str:
    """Replace what a regular expression matches, line by line.

    Args:
        pattern: the expression, in the syntax of ``re``; ``^`` and ``$`` match at every line.
        replace: the replacement, in the syntax of ``re.sub``.
        text: the text.

    Raises:
        PatternTooSlow: it takes more than :data:`SECONDS` seconds, or its process fails.
    """
    try:
        answer: str = json.loads(_process.ask(json.dumps([pattern, replace, text])))
    except PatternTooSlow as slow:
        raise PatternTooSlow(f"the pattern {pattern!r:.80} {slow}") from None
    return answer
