"""The command channel to a Python interpreter instead of a shell.

The keeper, the marker, the limits and the kill are those of ``channel.py``. The differences: an
action is one line with a Python literal; a running action is interrupted first, so that the
interpreter keeps its state; and a new interpreter has no state of the previous one.
"""

from __future__ import annotations

import secrets
import time

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.channel import Channel
from pytest_intercode.sandboxes.inside import text_of
from pytest_intercode.sandboxes.output import Output

__all__ = ["PythonChannel"]

_INTERRUPT_TIMEOUTS = (0.1, 0.3, 0.6)  # seconds that an action has after each KeyboardInterrupt
_START_TIMEOUT = 10.0  # seconds, on a busy machine

# Our copy of the builtins is made before the agent can change them. The empty entry of the path is
# the current directory, whose modules must not replace those of the standard library here.
_START_SCRIPT = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "exec(compile({text}, '<worker>', 'exec'), "
    "{{'__builtins__': {{**vars(__builtins__)}}, '__name__': 'worker'}})"
)


class PythonChannel(Channel):
    """The client's end of the channel to an interpreter."""

    python = True
    _workdir = "/"
    _count = 0  # actions so far, for their names in tracebacks
    _dead = False  # the interpreter had died when it was last waited for

    def _start(self, workdir: str) -> None:
        self._workdir = workdir
        self._start_shell()

    def _start_shell(self, first: bytes = b"") -> None:
        text = text_of("pytest_intercode.sandboxes", "python_worker")
        for _ in range(2):
            nonce = secrets.token_hex(8)
            call = f"main({self._workdir!a}, {nonce!r}, {self._count})\n"
            self._keeper.send(
                b"S " + ascii(_START_SCRIPT.format(text=ascii(text + call))).encode("ascii")
            )
            if self._has_started(nonce):
                return
            if self._interrupted.is_set():  # no action is run any more, so none is needed
                return
            # A fork bomb of an earlier action may have taken its place.
            self._keeper.kill_all()
        raise SandboxError("the sandbox starts no Python interpreter (it needs python3)")

    def _has_started(self, nonce: str) -> bool:
        limit = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < limit and not self._interrupted.is_set():
            if self._wait_for_answer(nonce, None, 0.5):
                return True
            if self._dead:
                return False
            self._keeper.send(f"P {nonce}".encode())
        return False

    def _encode_action(self, action: bytes, nonce: bytes) -> bytes:
        self._count += 1
        literal = ascii(action.decode("utf-8", "surrogateescape"))
        return b"%b %b\n" % (nonce, literal.encode("ascii"))

    def _stop(self, nonce: str, output: Output, reason: str) -> bool:
        if reason != "cancelled":
            for seconds in _INTERRUPT_TIMEOUTS:
                # Again each time: os.system() ignores the signal while its command runs.
                self._keeper.send(f"I {nonce}".encode())
                if self._wait_for_answer(nonce, output, seconds):
                    # Once more, for processes that it started between the signal and its end.
                    self._keeper.send(f"I {nonce}".encode())
                    # Some of a fork bomb stays: processes of earlier actions are not killed, and
                    # the interpreter, whose children they are, does not wait for them.
                    if self._keeper.wait_for_room():
                        return False
                    break
        self._kill()
        return True

    def _wait_for_answer(self, nonce: str, output: Output | None, seconds: float) -> bool:
        """Wait for the answer to an action; False if there is none, or the interpreter died."""
        limit = time.monotonic() + seconds
        self._dead = False
        while (remaining := limit - time.monotonic()) > 0 and not self._dead:
            kind, words = self._keeper.take_answer(nonce) or ("", [])
            if kind == "D":
                self._cwd = words[2]
                return True
            self._dead = kind == "P"
            if not kind:
                self._keeper.pump(remaining, output)
        return False

    def _clean_output(self, nonce: str, text: bytes) -> bytes:
        return text
