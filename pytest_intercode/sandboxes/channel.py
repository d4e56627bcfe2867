"""The command channel: one open pipe to the keeper of a sandbox, one message for one action.

The keeper (``keeper.sh``) is the sandbox's first process; the agent's shell is its child and lives
from action to action. A backend gives the channel a :class:`Transport`; nothing here knows about
Docker or any other backend.

How one action travels: the client sends it as one line of quoted bash, to the keeper, or directly
to the shell where nothing else runs. The shell evaluates it at its top level, with empty input; no
program that it starts has the descriptor of the answers. Then the shell reports nonce, status,
options and directory. Everything printed by then is the action's output. A transport that reads the
keeper's own pipe takes what is in the pipe; for any other, the client has the keeper print a marker
that was unknown before, and reads up to it. If the shell died instead, or the time ran out, the
keeper kills what the action started, and a new shell takes over the variables, functions and
directory of the last action that ended well.

The state for a new shell is written after each action, unless the action surely did not change it
(``state.py``).

The shell is the agent's, and so is what it leaves for the next one: neither is trusted. Answers are
read by a grammar with limits; a state that keeps a shell from starting is dropped.
"""

from __future__ import annotations

import posixpath
import re
import secrets
import threading
import time
from typing import Literal, TypeAlias

from pytest_intercode.errors import CommandFailed, SandboxError
from pytest_intercode.sandboxes.keeper import MAX_ADMIN_OUTPUT, Keeper, quote
from pytest_intercode.sandboxes.output import Output, as_bash_c
from pytest_intercode.sandboxes.protocol import Execution
from pytest_intercode.sandboxes.state import leaves_state, may_define
from pytest_intercode.sandboxes.transport import Transport

__all__ = ["INPUT_ENDED", "Channel"]

_EndReason: TypeAlias = Literal["itself", "timeout", "flood", "cancelled"]

FLOOD = 64 * 1024**2
"""Bytes of output, or of noise among the answers, after which an action is stopped."""

INPUT_ENDED = 77
"""The status with which the keeper exits when its input has ended; see ``keeper.sh``."""

_FIRST_LINE = 1002
"""The number that a shell gives to the first line of its first action; see ``keeper.sh``."""

# At most. One line is empty: if an action does not parse, bash takes the next line as a part of it,
# and would not read ours.
_LINES_PER_ACTION = 3
_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.02, 0.25  # seconds
# With the last shell's state, without it, and once more if a fork bomb has taken a shell's place.
_MAX_SHELL_STARTS = 3
_SHELL_START_TIMEOUT = 15.0  # seconds, for all tries together, on a busy machine
_BOMB_CHECK_DELAY = 5.0  # seconds after which a fork bomb may be why no shell starts
_STATE_TIMEOUT = 2.0  # seconds for a shell that has started to take over the state

# After `set -v` the shell shows the line that the keeper added, too.
_VERBOSE_LINE = re.compile(rb"\n\{ __intercode_end ([\w-]+);.*\n")


class Channel:
    """The client's end of the channel. One thread at a time may use it, any may interrupt it."""

    python = False

    def __init__(
        self,
        transport: Transport,
        *,
        workdir: str,
        output_limit: int,
        lowered: bool = False,
        offline: bool = True,
        user: str = "",
    ) -> None:
        self._output_limit = output_limit
        self._has_state = True  # the current shell took over the last one's state
        self._next_nonce = secrets.token_urlsafe(6)  # short: the shell reads it byte by byte
        self._new_shell = True  # since the last action
        self._alone = False  # nothing but keeper and shell ran when the last action began
        self._defines = False  # there may be functions, aliases and traps
        self._status, self._flags = 0, ""
        self._cwd, self._line = workdir, 0
        self._actions: list[tuple[int, int]] = []  # of this shell: first line, further lines
        self._interrupted, self._lock = threading.Event(), threading.Lock()
        flags = {"lowered": lowered, "offline": offline, "python": self.python}
        self._keeper = Keeper(transport, output_limit, flags, user)
        with self._keeper.starting():
            if lowered:  # it lowers what the keeper starts
                self.load_lister()
            self._start(workdir)
        if self._cwd != posixpath.normpath(workdir).replace("\n", "?"):
            raise SandboxError(f"the working directory {workdir} cannot be made")

    def interrupt(self) -> None:
        """End the running action, and every later one immediately; from any thread."""
        self._interrupted.set()

    def close(self) -> None:
        """Close the transport; the sandbox ends with its channel."""
        self._keeper.transport.close()

    # -- actions

    def run(self, action: str, timeout: float) -> Execution:
        """Run one action; see :meth:`pytest_intercode.sandboxes.protocol.Sandbox.run`."""
        with self._lock:
            return self._run(action.encode("utf-8", "surrogateescape"), timeout)

    def _run(self, action: bytes, timeout: float) -> Execution:
        began = time.monotonic()
        nonce = self._next_nonce
        text = self._encode_action(action, nonce.encode())
        # If the text went directly to the shell, no earlier job ran, and the keeper has made no
        # list of jobs that a kill would have to spare: a kill is for everything then.
        self._alone = self._keeper.transport.send_to_shell(text, self._new_shell)
        self._new_shell = False
        if not self._alone:
            self._keeper.transport.send(b"A %d\n%b" % (len(text), text))
        # The shell need not wait for what is done from here on.
        self._next_nonce = secrets.token_urlsafe(6)
        output = Output(self._output_limit)
        self._keeper.begin_action(output)
        end_reason, status, restarted = self._await_end(nonce, output, began, timeout)
        # The answer came by another way than the output, and may have overtaken it.
        self._keeper.read_rest(output)
        if output.size and not output.truncated:
            text = output.getvalue()
            cleaned = self._clean_output(nonce, text)
            if cleaned != text:
                output = Output(self._output_limit)
                output.add(cleaned)
        if restarted:
            self._status, self._flags = 0, ""
            self._start_shell()
        if end_reason != "itself":
            # Processes that were killed while they wrote may have printed something only now.
            self._keeper.read_rest(Output(0))
            self._keeper.pending.clear()
        return Execution(
            output=output.getvalue(),
            size=output.size,
            digest=output.digest(),
            status=status,
            cwd=self._cwd,
            ended=end_reason,
            restarted=restarted,
            state_lost=restarted and not self._has_state,
            seconds=time.monotonic() - began,
        )

    def _await_end(
        self, nonce: str, output: Output, began: float, timeout: float
    ) -> tuple[_EndReason, int | None, bool]:
        """Wait for the end of an action, or enforce it.

        Returns:
            How it ended, its exit status if it had one, and whether its shell is lost.
        """
        usual_answer = b"E %b 0\n" % nonce.encode()  # what most answers look like
        interval, ask_at = _MIN_POLL_INTERVAL, began + _MIN_POLL_INTERVAL
        while True:
            current_time = time.monotonic()
            if current_time - began >= timeout:
                return "timeout", None, self._stop(nonce, output, "timeout")
            if output.size > FLOOD or self._keeper.noise > FLOOD:
                return "flood", None, self._stop(nonce, output, "flood")
            if self._interrupted.is_set():
                return "cancelled", None, self._stop(nonce, output, "cancelled")
            if current_time >= ask_at:
                # A shell that has died answers nothing any more, but its parent, the keeper, knows.
                self._keeper.send(b"P %b" % nonce.encode())
                interval = min(interval * 1.5, _MAX_POLL_INTERVAL)
                ask_at = current_time + interval
            self._keeper.pump(min(began + timeout, ask_at) - current_time, output)
            # Only if nothing else has come: anything before or after it is for the grammar.
            if self._keeper.answers == usual_answer:
                self._keeper.answers.clear()
                self._status = 0
                return "itself", 0, False
            kind, words = self._keeper.take_answer(nonce) or (None, [])
            if kind in ("D", "E"):
                self._status = int(words[0])
                if kind == "D":
                    self._flags, self._cwd = words[1:]
                return "itself", self._status, False
            if kind == "P" and words[0] == "dead":
                return "itself", int(words[1]), True
            if kind == "":  # forged, or from a shell that is not bash any more
                self._kill()
                return "itself", None, True

    # -- what differs for a shell that is not bash

    def _start(self, workdir: str) -> None:
        """Start the first shell, in the working directory."""
        home = quote(workdir.encode("utf-8", "surrogateescape"))
        self._start_shell(b"[ -d %b ] || mkdir -p -- %b; cd -- %b; " % ((home,) * 3))

    def _encode_action(self, action: bytes, nonce: bytes) -> bytes:
        """Return the lines that the shell reads for an action."""
        options = "".join(flag for flag in self._flags if flag in "exv")
        prefix = b"set -%b; " % options.encode() if options else b""
        self._actions.append((self._line, action.count(b"\n")))
        self._line += _LINES_PER_ACTION
        if not (self._defines or options) and leaves_state(action):
            # Few bytes: bash reads them one by one, which takes most of the time of a short action.
            return b"{ %b;} <&205\n\n__ic %b\n" % (action, nonce)
        self._defines = self._defines or may_define(action)
        line = b"builtin eval %b </dev/null\n\n" % quote(prefix + action)
        if self._status:  # with `||`, the action still sees `$?`, and traps see no error
            line = b"__intercode_status %d || %b" % (self._status, line)
        return b"%b{ __intercode_end %b; } 2>/dev/null\n" % (line, nonce)

    def _stop(self, nonce: str, output: Output, reason: str) -> bool:
        """Stop a running action; return whether its shell is lost."""
        self._kill()
        return True

    def _clean_output(self, nonce: str, text: bytes) -> bytes:
        """Return what an action printed, without the lines that are ours."""
        text = _VERBOSE_LINE.sub(lambda line: b"" if line[1] == nonce.encode() else line[0], text)
        return as_bash_c(text, self._actions)

    # -- stopping and restarting

    def _kill(self) -> None:
        """Kill what the action started, and also earlier jobs if they are a fork bomb."""
        self._keeper.kill("all" if self._alone else "")
        # So many processes of earlier actions are a fork bomb, which would grow again.
        if not self._keeper.wait_for_room():
            self._keeper.kill_all()

    def _start_shell(self, first: bytes = b"") -> None:
        """Start a shell with the last one's state, or without it if that keeps it from starting."""
        state, limit = b"kept", time.monotonic() + _SHELL_START_TIMEOUT
        self._new_shell = True
        for _ in range(_MAX_SHELL_STARTS):
            nonce = secrets.token_hex(8)
            self._keeper.send(b"S %b %b %b" % (nonce.encode(), state, first))
            progress = self._await_shell(nonce, limit)
            if progress == "D":
                self._has_state = state == b"kept"
                self._line = _FIRST_LINE
                self._actions.clear()
                return
            if self._interrupted.is_set():  # no action is run any more, so none is needed
                return
            state = b"fresh" if progress == "U" else state
            # Or a fork bomb of an earlier action has taken the new shell's place.
            self._keeper.kill_all()
        raise SandboxError(f"the sandbox starts no shell{_hint(self._keeper.user, self._line)}")

    def _await_shell(self, nonce: str, limit: float) -> Literal["D", "U", ""]:
        """Wait for a shell; return how far it got: to its end, to its state, or nowhere."""
        progress: Literal["U", ""] = ""
        current_time = time.monotonic()
        ask_at, checked_for_bomb = current_time + _MIN_POLL_INTERVAL, False
        deadline = min(limit, current_time + _BOMB_CHECK_DELAY)
        while not self._interrupted.is_set():
            current_time = time.monotonic()
            if current_time >= deadline:
                if progress or checked_for_bomb or self._keeper.has_bomb():
                    break
                checked_for_bomb, deadline = True, limit  # no bomb, but a busy machine
            if current_time >= ask_at:
                self._keeper.send(f"P {nonce}".encode())
                ask_at = current_time + _MAX_POLL_INTERVAL
            kind, words = self._keeper.take_answer(nonce) or (None, [])
            if kind == "D":
                self._cwd = words[2]
                # The status tells whether a file was read that may define anything ($BASH_ENV).
                self._defines = self._defines or words[0] != "0"
                return "D"
            if kind == "U":
                progress, deadline = "U", min(limit, current_time + _STATE_TIMEOUT)
            elif kind == "P" and words[0] == "dead":
                break
            elif kind is None:
                self._keeper.pump(min(ask_at, deadline) - time.monotonic())
        return progress

    # -- our own commands

    def admin(
        self, command: str, timeout: float, max_output: int = MAX_ADMIN_OUTPUT
    ) -> tuple[int, bytes]:
        """Run a command outside the shell; its output travels with the answers.

        Args:
            command: the command, in bash.
            timeout: seconds that it has.
            max_output: bytes that it may print.

        Returns:
            Its status and what it printed.

        Raises:
            CommandFailed: it did not end, or printed more. It was killed, and the shell, which
                cannot be distinguished from it, was replaced.
        """
        code = quote(command.encode("utf-8", "surrogateescape"))
        return self._ask_for_output(b"X", code, timeout, max_output, command)

    def load_lister(self) -> None:
        """Give the keeper the lister, before the agent acts; see :meth:`Keeper.load_lister`."""
        with self._lock:
            self._keeper.load_lister()

    def list_files(self, request: bytes, timeout: float, max_output: int) -> tuple[int, bytes]:
        """Send a request to the lister (see ``lister.c``), as :meth:`admin` runs a command.

        Other processes may have added something to its answer.
        """
        self.load_lister()
        return self._ask_for_output(b"L", request, timeout, max_output, "reading its files")

    def _ask_for_output(
        self, kind: bytes, text: bytes, timeout: float, max_output: int, label: str
    ) -> tuple[int, bytes]:
        """Send the keeper a command; replace the shell if the command fails."""
        with self._lock:
            try:
                return self._keeper.run_command(kind, text, timeout, max_output, label)
            except CommandFailed:
                self._kill()
                self._status, self._flags = 0, ""
                self._start_shell()
                raise

    def check(self) -> None:
        """Check that the keeper answers; see :meth:`Keeper.check`."""
        with self._lock:
            self._keeper.check()

    def halt(self) -> None:
        """Kill everything but the keeper; the shell is not started again."""
        with self._lock:
            self._keeper.kill_all()

    def settle(self, timeout: float) -> bytes:
        """Wait until nothing runs besides the keeper and the shell; return what was printed since.

        Background processes of an action may still be at work when the action has ended. The next
        action's output also contains what is returned here.
        """
        limit = time.monotonic() + timeout
        with self._lock:
            while not self._keeper.is_idle() and time.monotonic() < limit:
                time.sleep(0.01)
            late = Output(self._output_limit)
            self._keeper.read_rest(late)
            self._keeper.pending += late.getvalue()
            self._keeper.pending[:] = as_bash_c(bytes(self._keeper.pending), self._actions)
            return bytes(self._keeper.pending)

    def unpack(self, archive: bytes) -> None:
        """Stream a tar archive to the keeper."""
        with self._lock:
            self._keeper.unpack(archive)


def _hint(user: str, line: int) -> str:
    """Return a hint at what may keep the first shell from starting; later, the actions may."""
    return f" as {user}; is it a user of the image?" if user and line == 0 else ""
