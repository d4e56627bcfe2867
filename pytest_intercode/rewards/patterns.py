"""Applies the regular expressions that a suite declares to outputs, within a limit of time.

An output is the agent's, and some patterns take too long on a text made for it. Nothing can
stop Python's ``re`` in the middle, so one process does this for all episodes, and the kernel ends
it when its time is up. It is started when it is first needed, and reads and writes nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

from pytest_intercode.errors import PatternTooSlow

__all__ = ["SECONDS", "substitute"]

SECONDS = 2.0
"""Seconds of a processor that one pattern has for one output; usual ones take a thousandth."""

_MAX_MEMORY = 1024**3  # bytes of the process
_MEMORY_INTERVAL = 0.02  # seconds of a processor between two looks at it, where they are needed
_MAX_TRIES = 2  # the process may be killed by others
_PROGRAM = f"""
import json, os, re, resource, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
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
    signal.setitimer(signal.ITIMER_PROF, {SECONDS})
    text = re.sub(pattern, replace, text, flags=re.MULTILINE)
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(text), flush=True)
"""
_OUT_OF_BOUNDS = (-signal.SIGPROF, 1)  # its time was up, or it ran out of memory


class _Process:
    """The process of this process; a forked child starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._parents: subprocess.Popen[str] | None = None

    def ask(self, request: str) -> str:
        """Send a line and return the answer.

        Raises:
            PatternTooSlow: there is none.
        """
        with self._lock:
            status: int | None = None
            for _ in range(_MAX_TRIES):
                answer = self._exchange(request)
                if answer.endswith("\n"):
                    return answer
                status = self._end()
                if status in _OUT_OF_BOUNDS:
                    raise PatternTooSlow(f"takes more than {SECONDS:g} s")
            raise PatternTooSlow(f"cannot be applied: its process ended with status {status}")

    def _exchange(self, request: str) -> str:
        process = self._process
        if process is None:
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="ascii",
            )
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        except OSError:
            return ""
        except BaseException:  # an answer that nobody waits for must not be taken for the next
            process.kill()
            self._end()
            raise

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        return process.wait()

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """Leave it to the parent of this forked child."""
        if self._process is not None:
            self._process.returncode = 0  # else it would be waited for here
            self._parents = self._process  # what was half sent is not to be sent from here
        self._process = None
        self._lock = threading.Lock()


_process = _Process()
atexit.register(_process.close)
os.register_at_fork(after_in_child=_process.forget)


def substitute(pattern: str, replace: str, text: str) -> str:
    """Replace what a regular expression matches, line by line.

    Args:
        pattern: the expression, in the syntax of ``re``; ``^`` and ``$`` match at every line.
        replace: what a match becomes, in the syntax of ``re.sub``.
        text: the text.

    Raises:
        PatternTooSlow: it takes more than :data:`SECONDS` seconds.
    """
    try:
        answer: str = json.loads(_process.ask(json.dumps([pattern, replace, text])))
    except PatternTooSlow as slow:
        raise PatternTooSlow(f"the pattern {pattern!r:.80} {slow}") from None
    return answer
