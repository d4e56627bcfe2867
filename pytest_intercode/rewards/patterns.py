"""Applies the regular expressions that a suite declares to outputs, within a limit of time.

An output is the agent's, and some patterns take too long on a text made for it. Nothing can
stop Python's ``re`` in the middle, so one process does this for all episodes, and it is ended when
its time is up: by the kernel, where that can. It is started when it is first needed, and reads and
writes nothing else.
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
"""Seconds of a processor that one pattern has for one output; usual ones take a thousandth."""

_MAX_MEMORY = 1024**3  # bytes of the process
_MEMORY_INTERVAL = 0.02  # seconds of a processor between two looks at it, where they are needed
_MAX_TRIES = 2  # the process may be killed by others
_HAS_TIMER = hasattr(signal, "setitimer")  # Windows has none, and no limit of memory either
_ANSWER_TIMEOUT = 5 * SECONDS  # seconds for an answer, where a processor's cannot be limited
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
_OUT_OF_MEMORY = 1  # the status that Python ends with


class _Process:
    """The process of this process; a forked child starts its own.

    Args:
        timed: the kernel ends it; else this process does, by the wall's clock.
    """

    def __init__(self, timed: bool = _HAS_TIMER) -> None:
        self._timed = timed
        self._late = False  # it was ended from here
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
                # The kernel's signal is not known on Windows, which has no such timer.
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
        except BaseException:  # an answer that nobody waits for must not be taken for the next
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
run_in_children(_process.forget)


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
