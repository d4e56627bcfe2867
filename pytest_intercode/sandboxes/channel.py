"""The command channel: one open pipe to the keeper of a sandbox, one message for one action.

The keeper (``keeper.sh``) is the sandbox's first process; the agent's shell is its child and lives
from action to action. A backend gives the channel a :class:`Transport`; nothing here knows about
Docker or any other backend.

How one action travels: the client sends it as one line of quoted bash, to the keeper, or straight
to the shell where nothing else runs; the shell evaluates it at its top level, with empty input, and
no program that it starts has the answering descriptor; then it reports nonce, status, options and
directory. Everything that was printed by then is the action's output: a
transport that reads the keeper's own pipe takes what is in there; for any other the client has the
keeper print a marker that was unknown before, and reads up to it. When the shell
died instead, or the clock ran out, the keeper kills what the action started and a new shell takes
over the variables, functions and directory of the last action that ended well.

What a new shell takes over is written after each action, unless that surely changed nothing of it
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
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple, Protocol

from pytest_intercode.errors import CommandFailed, SandboxError, UnpackFailed
from pytest_intercode.sandboxes import lister
from pytest_intercode.sandboxes.output import Output, as_bash_c
from pytest_intercode.sandboxes.protocol import Execution
from pytest_intercode.sandboxes.state import leaves_state, may_define

__all__ = ["INPUT_ENDED", "Channel", "ChannelClosed", "Transport"]

FLOOD = 64 * 1024**2
"""Bytes of output, and of noise among the answers, after which an action is stopped."""

INPUT_ENDED = 77
"""The status that the keeper ends with where its input has ended; see ``keeper.sh``."""

MAX_ADMIN_OUTPUT = 256 * 1024**2
"""Bytes that one of our commands may print; it may be one of the agent's programs that answers."""

_STATE = "/proc/self/fd/203"  # where the shell notes its state after each action; see keeper.sh

_FIRST_LINE = 1002
"""The number that a shell gives to its first action's first line (``ahead`` in ``keeper.sh``)."""

_LINES_PER_ACTION = 3  # at most

_IDLE_PROCESSES = 2  # processes: the keeper and the shell
_MAX_PROCESSES = 30  # processes: more than the jobs that an action leaves behind

_MIN_POLL_INTERVAL, _MAX_POLL_INTERVAL = 0.02, 0.25  # seconds
_KILL_TIMEOUT = 2.0  # seconds in which the killed processes of a bomb go
_ANSWER_TIMEOUT = 5.0  # seconds
_SHELL_START_TIMEOUT = 15.0  # seconds, all tries together, on a busy machine
_STATE_TIMEOUT = 2.0  # seconds that a shell which runs already may take over its state

_MAX_ANSWER = 16_384  # bytes of an answer: the longest has a path in it
_MAX_STATUS = 255
# What follows the nonce in an answer of each kind; see keeper.sh.
_ANSWERS = {
    b"B": re.compile(rb" (\d{1,3})"),
    b"E": re.compile(rb" (\d{1,3})"),
    b"D": re.compile(rb" (\d{1,3}) ([A-Za-z]{1,40}|-) ([^\0]*)"),
    b"K": re.compile(rb" (\d{1,7})"),
    b"N": re.compile(rb" (\d{1,7})"),
    b"P": re.compile(rb" (alive|dead) (\d{1,3})"),
    b"T": re.compile(rb" (\d{1,3}) ([^\0]*)"),
    b"U": re.compile(rb""),
    b"V": re.compile(rb" (\w{1,40})"),
}

_SHELL_START = (
    "builtin unset __intercode; "
    # An empty input. Programs shall have none of these. bash closes the copy of a descriptor that
    # it puts aside for a while when it executes a program, and so each copy of that one.
    "exec 205</dev/null 10>&- 204>&-; "
    + "".join(f"{{ exec 204>&10; }} {n}>&-; exec {n}>&204 204>&-; " for n in (201, 203, 205))
    + '__ic() { builtin echo "E $1 $?" >&201 || builtin exit; }; '
    '__intercode_status() { builtin return "$1"; }; '
    # `builtin`, as the agent's functions may have any name. Options that would disturb these
    # lines go off; the next action turns them on again. What the agent defined comes last in the
    # state, so that it cannot get between the lines that restore the rest. Options are a line and
    # not one for each, as bash writes each line by a call of its own.
    # The answer comes first: the client need not wait for the state.
    '__intercode_end() { builtin printf \'D %s %s %s %s\\n\' "$1" "$?" "$-" '
    "\"${PWD//$'\\n'/?}\" >&201 || builtin exit; builtin set +exv; { builtin printf "
    "'shopt -uo ${SHELLOPTS//:/ }; shopt -so %s; shopt -u ${BASHOPTS//:/ }; shopt -s %s\\n' "
    '"${SHELLOPTS//:/ }" "${BASHOPTS//:/ }"; builtin declare -p; builtin umask -p; '
    "builtin printf 'cd -- %q\\n' \"$PWD\"; "
    "builtin declare -f; builtin alias -p; builtin trap -p; "
    f"}} >|{_STATE}; "
    # No failure of its own: the agent's ERR trap is not for this line.
    "builtin return 0; }; "
)
# Beyond ASCII it would matter how a shell counts characters.
_QUOTED = re.compile(rb"[\x00-\x1f\x7f-\xff'\\]")
# After `set -v` the shell shows the line that the keeper added, too.
_VERBOSE_LINE = re.compile(rb"\n\{ __intercode_end ([\w-]+);.*\n")


class ChannelClosed(SandboxError):
    """The other end is gone: the sandbox ended."""


class Chunk(NamedTuple):
    """Bytes that arrived from the sandbox."""

    stream: Literal["output", "answers"]
    data: bytes


class Transport(Protocol):
    """Carries bytes to the keeper's input and back from its two outputs."""

    def send(self, data: bytes) -> None:
        """Queue bytes for the keeper; they leave while :meth:`receive` waits."""

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait up to ``timeout`` seconds and return what arrived, oldest first.

        Raises:
            ChannelClosed: the sandbox has ended.
        """

    def send_to_shell(self, data: bytes, new: bool) -> bool:
        """Write straight to the shell's input, if nothing but keeper and shell runs.

        Args:
            data: bytes for the shell.
            new: it is not the shell of the last call.

        Returns:
            Whether it was done; if not, the keeper has to do it.
        """

    def read_output(self) -> bytes | None:
        """Return at once what is written to the keeper's stdout and was not yet received.

        None if that is unknown, as something in between carries it in its own time.
        """

    def close(self) -> None:
        """Let go; the sandbox ends."""


@cache
def keeper_script() -> bytes:
    """Return the text that the sandbox's bash is fed first, without its comments."""
    text = resources.files("pytest_intercode.sandboxes").joinpath("keeper.sh").read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return ("\n".join(lines) + "\n").encode()


def quote(text: bytes) -> bytes:
    """Quote bytes as one word of one line of bash."""
    return b"$'" + _QUOTED.sub(lambda match: b"\\%03o" % match.group()[0], text) + b"'"


def _parse_answer(kind: bytes, said: bytes) -> list[str] | None:
    """Return the words of an answer; None if an answer of its kind cannot be like that."""
    match = _ANSWERS[kind].fullmatch(said)
    words = [word.decode("utf-8", "surrogateescape") for word in match.groups()] if match else None
    if words and kind in (b"D", b"E", b"P") and int(words[kind == b"P"]) > _MAX_STATUS:
        return None
    return words


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
        self._transport = transport
        self._output_limit = output_limit
        self._answers = bytearray()
        self._noise = 0  # bytes among the answers that are none, since the action began
        self._has_state = True  # the present shell took over the state of the one before
        self._pending = bytearray()  # output that arrived outside of any action
        self._next_nonce = secrets.token_urlsafe(6)  # short: the shell reads it byte by byte
        self._new_shell = True  # since the last action
        self._alone = False  # nothing but keeper and shell ran when the last action began
        self._defines = False  # there may be functions, aliases and traps
        self._status = 0
        self._flags = ""
        self._cwd = workdir
        self._line = 0
        self._actions: list[tuple[int, int]] = []  # of this shell: first line, further lines
        self._interrupted = threading.Event()
        self._lock = threading.Lock()
        self._has_lister = False
        flags = (("lowered", lowered), ("offline", offline), ("python", self.python))
        settings = "".join(f"{name}={'yes' if value else ''}; " for name, value in flags).encode()
        # When it knows how much is to come, bash reads it in one piece, and not byte by byte.
        start = _SHELL_START.encode()
        script = b"%buser=%b\n%b" % (settings, quote(user.encode()), keeper_script())
        transport.send(
            b'IFS= read -rN %d start; IFS= read -rN %d keeper; eval "$keeper"\n%b%b'
            % (len(start), len(script), start, script)
        )
        if lowered:  # it lowers what the keeper starts
            self.load_lister()
        self._start(workdir)
        if self._cwd != posixpath.normpath(workdir).replace("\n", "?"):
            raise SandboxError(f"the working directory {workdir} cannot be made")

    @property
    def cwd(self) -> str:
        """The shell's directory after the last action."""
        return self._cwd

    def interrupt(self) -> None:
        """End the running action, and every later one at once; from any thread."""
        self._interrupted.set()

    def close(self) -> None:
        """Let go of the sandbox, which ends with its channel."""
        self._transport.close()

    # -- actions

    def run(self, action: str, timeout: float) -> Execution:
        """Run one action; see :meth:`pytest_intercode.sandboxes.protocol.Sandbox.run`."""
        with self._lock:
            return self._run(action.encode("utf-8", "surrogateescape"), timeout)

    def _run(self, action: bytes, timeout: float) -> Execution:
        began = time.monotonic()
        nonce = self._next_nonce
        text = self._encode_action(action, nonce.encode())
        self._alone = self._transport.send_to_shell(text, self._new_shell)
        self._new_shell = False
        if not self._alone:
            self._transport.send(b"A %d\n%b" % (len(text), text))

        # What is done from here on, the shell need not wait for.
        self._next_nonce = secrets.token_urlsafe(6)
        usual_answer = b"E %b 0\n" % nonce.encode()  # as most answers are
        output = Output(self._output_limit)
        if self._pending:
            output.add(bytes(self._pending))
            self._pending.clear()
        self._noise = 0
        end_reason: Literal["itself", "timeout", "flood", "cancelled"] = "itself"
        code: int | None = None
        restarted = False
        interval = _MIN_POLL_INTERVAL
        ask_at = began + interval
        while True:
            current_time = time.monotonic()
            if current_time - began >= timeout:
                end_reason = "timeout"
            elif output.size > FLOOD or self._noise > FLOOD:
                end_reason = "flood"
            elif self._interrupted.is_set():
                end_reason = "cancelled"
            if end_reason != "itself":
                restarted = self._stop(nonce, output, end_reason)
                break
            if current_time >= ask_at:
                self._send(b"P %b" % nonce.encode())
                interval = min(interval * 1.5, _MAX_POLL_INTERVAL)
                ask_at = current_time + interval
            self._pump(min(began + timeout, ask_at) - current_time, output)
            if self._answers == usual_answer:
                self._answers.clear()
                self._status = code = 0
                break
            answer = self._take_answer(nonce)
            if answer is None:
                continue
            kind, words = answer
            if kind in ("D", "E"):
                self._status = code = int(words[0])
                if kind == "D":
                    self._flags, self._cwd = words[1:]
                break
            if kind == "P" and words[0] == "dead":
                code, restarted = int(words[1]), True
                break
            if not kind:  # forged, or of a shell that is not bash any more
                self._kill()
                restarted = True
                break
        self._read_rest(output)
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
            # What was killed in the middle of a write may have come out only now.
            self._read_rest(Output(0))
            self._pending.clear()
        return Execution(
            output=output.getvalue(),
            size=output.size,
            digest=output.digest(),
            status=code,
            cwd=self._cwd,
            ended=end_reason,
            restarted=restarted,
            state_lost=restarted and not self._has_state,
            seconds=time.monotonic() - began,
        )

    # -- what another shell than bash has differently

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
            # Few bytes: bash reads them one by one, which is most of what a short action takes.
            return b"{ %b;} <&205\n\n__ic %b\n" % (action, nonce)
        self._defines = self._defines or may_define(action)
        line = b"builtin eval %b </dev/null\n\n" % quote(prefix + action)
        if self._status:  # with `||`, it is still `$?` of the action, and no error to traps
            line = b"__intercode_status %d || %b" % (self._status, line)
        return b"%b{ __intercode_end %b; } 2>/dev/null\n" % (line, nonce)

    def _stop(self, nonce: str, output: Output, reason: str) -> bool:
        """Stop a running action; return whether its shell is lost."""
        self._kill()
        return True

    def _clean_output(self, nonce: str, text: bytes) -> bytes:
        """Return what an action printed, without what is not its own."""
        own_nonce = nonce.encode()
        text = _VERBOSE_LINE.sub(lambda match: b"" if match[1] == own_nonce else match[0], text)
        return as_bash_c(text, self._actions)

    # -- stopping and restarting

    def _kill(self) -> None:
        """Kill what the action started, and earlier jobs too if they are a fork bomb."""
        self._kill_once("all" if self._alone else "")
        # So many processes of earlier actions are a fork bomb, which would come back.
        if not self._wait_for_room():
            self._kill_all()

    def _kill_all(self) -> None:
        if self._kill_once("all") > _MAX_PROCESSES:
            self._wait_for_room(_ANSWER_TIMEOUT)

    def _kill_once(self, scope: Literal["", "all"]) -> int:
        """Kill the shell and what the last action started, or everything; return how many."""
        # For long: the keeper takes commands in order, so nothing else would be done sooner.
        answer = self._ask("K", scope, 3 * _ANSWER_TIMEOUT)
        if answer is None:
            raise SandboxError("the sandbox does not answer after a kill")
        return int(answer[0])

    def _wait_for_room(self, seconds: float = _KILL_TIMEOUT) -> bool:
        """Wait until what was killed is gone, on a busy machine too; False if a bomb is there.

        Until then the keeper must start nothing: a bash that cannot fork ends.
        """
        limit = time.monotonic() + seconds
        while self._has_bomb():
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        return True

    def _has_bomb(self) -> bool:
        try:
            return self._processes() > _MAX_PROCESSES
        except ChannelClosed:
            raise
        except SandboxError:  # there may be too many for an answer
            return True

    def _start_shell(self, first: bytes = b"") -> None:
        """Start a shell with the state of the one before, or without it if that stops the shell."""
        state, limit = b"kept", time.monotonic() + _SHELL_START_TIMEOUT
        self._new_shell = True
        for _ in range(3):
            nonce = secrets.token_hex(8)
            self._send(b"S %b %b %b" % (nonce.encode(), state, first))
            progress = self._await_shell(nonce, limit)
            if progress == "D":
                self._has_state = state == b"kept"
                self._line = _FIRST_LINE
                self._actions.clear()
                return
            if self._interrupted.is_set():  # no action is run any more, so none is needed
                return
            if progress == "U":
                state = b"fresh"
            # Or a bomb that an earlier action left behind has taken the new shell's place.
            self._kill_all()
        raise SandboxError("the sandbox starts no shell")

    def _await_shell(self, nonce: str, limit: float) -> Literal["D", "U", ""]:
        """Wait for a shell; return how far it came: to its end, to its state, or nowhere."""
        progress: Literal["U", ""] = ""
        current_time = time.monotonic()
        ask_at, checked_for_bomb = current_time + _MIN_POLL_INTERVAL, False
        deadline = min(limit, current_time + _ANSWER_TIMEOUT)
        while not self._interrupted.is_set():
            current_time = time.monotonic()
            if current_time >= deadline:
                if progress or checked_for_bomb or self._has_bomb():
                    break
                checked_for_bomb, deadline = True, limit  # no bomb, but a busy machine
            if current_time >= ask_at:
                self._send(f"P {nonce}".encode())
                ask_at = current_time + _MAX_POLL_INTERVAL
            kind, words = self._take_answer(nonce) or (None, [])
            if kind == "D":
                self._cwd = words[2]
                # It shows whether a file was read that may define anything ($BASH_ENV).
                self._defines = self._defines or words[0] != "0"
                return "D"
            if kind == "U":
                progress, deadline = "U", min(limit, current_time + _STATE_TIMEOUT)
            elif kind == "P" and words[0] == "dead":
                break
            elif kind is None:
                self._pump(min(ask_at, deadline) - time.monotonic())
        return progress

    def _read_rest(self, output: Output) -> None:
        """Add what the keeper's stdout holds by now."""
        rest = self._transport.read_output()
        if rest is not None:
            output.add(rest)
            return
        marker = secrets.token_hex(16).encode()
        self._send(b"M " + marker)
        window = bytearray()
        marker_found = False
        limit = time.monotonic() + _ANSWER_TIMEOUT + 25
        while time.monotonic() < limit:
            for chunk in self._transport.receive(1.0):
                if chunk.stream == "answers":
                    self._answers += chunk.data
                    continue
                if marker_found:  # a background job has printed it since
                    self._pending += chunk.data
                    continue
                window += chunk.data
                index = window.find(marker)
                if index >= 0:
                    output.add(bytes(window[:index]))
                    self._pending += window[index + len(marker) :]
                    marker_found = True
                elif len(window) > len(marker):
                    output.add(bytes(window[: -len(marker)]))
                    del window[: -len(marker)]
            if marker_found:
                return
        raise SandboxError("the sandbox does not answer")

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
        """Give the keeper the program that reads the sandbox's files, before the agent acts.

        Raises:
            SandboxError: there is none for its machine, or its bash cannot load it.
        """
        with self._lock:
            if self._has_lister:
                return
            machine = " ".join(self._ask("V", "", _SHELL_START_TIMEOUT) or ["?"])
            if machine not in lister.MACHINES:
                machines = " and ".join(lister.MACHINES)
                raise SandboxError(
                    f"a sandbox on {machine} cannot be graded: the program that reads its files "
                    f"is there for {machines} only"
                )
            text = lister.escape_program(machine)
            if self._ask("B", f"{len(text)}", _SHELL_START_TIMEOUT, text) != ["0"]:
                raise SandboxError(
                    "the sandbox's bash cannot load the program that reads its files: it has to "
                    "know `enable -f`, and to be allowed to write to / and run what is there"
                )
            self._has_lister = True

    def list_files(self, request: bytes, timeout: float, max_output: int) -> tuple[int, bytes]:
        """Have the lister answer a request (see ``lister.c``).

        Args:
            request: the request.
            timeout: seconds that it has.
            max_output: bytes that the answer may have.

        Returns:
            Its status, and its answer, to which other processes may have added.

        Raises:
            CommandFailed: as :meth:`admin` does.
        """
        self.load_lister()
        return self._ask_for_output(b"L", request, timeout, max_output, "reading its files")

    def _ask_for_output(
        self, kind: bytes, text: bytes, timeout: float, max_output: int, label: str
    ) -> tuple[int, bytes]:
        """Send the keeper a command that is answered by a status and any output."""
        with self._lock:
            nonce = secrets.token_hex(8).encode()
            self._answers.clear()
            self._transport.send(b"%b %b %d\n%b" % (kind, nonce, len(text), text))
            begin, end = b"%b %b\n" % (kind, nonce), b"\n%b %b " % (kind, nonce)
            answers, searched = self._answers, 0  # bytes in which the end was looked for
            limit = time.monotonic() + timeout
            while (remaining := limit - time.monotonic()) > 0 and len(answers) <= max_output:
                self._pump(min(1.0, remaining))
                index = answers.find(end, max(0, searched - len(end)))
                if index < 0:
                    searched = len(answers)
                    continue
                searched = index
                status, newline, _ = answers[index + len(end) :].partition(b"\n")
                start = answers.find(begin, 0, index + 1)
                if newline and start >= 0 and re.fullmatch(rb"\d{1,3}", status):
                    output = bytes(answers[start + len(begin) : index])
                    answers.clear()
                    return int(status), output
            failure = f"did not finish within {timeout:g} s"
            if len(answers) > max_output:
                failure = f"printed more than {max_output} bytes"
            answers.clear()
            self._kill()
            self._status, self._flags = 0, ""
            self._start_shell()
            raise CommandFailed(f"{failure}: {label[:200]}")

    def halt(self) -> None:
        """Kill everything but the keeper; the shell is not started again."""
        with self._lock:
            self._kill_all()

    def settle(self, timeout: float) -> bytes:
        """Wait until nothing runs besides the keeper and the shell; return what was printed since.

        What an action started in the background may still be at work when the action has ended.
        The next action's output holds what is returned here, too.
        """
        limit = time.monotonic() + timeout
        with self._lock:
            while True:
                if self._processes() <= _IDLE_PROCESSES or time.monotonic() >= limit:
                    break
                time.sleep(0.01)
            late = Output(self._output_limit)
            self._read_rest(late)
            self._pending += late.getvalue()
            self._pending[:] = as_bash_c(bytes(self._pending), self._actions)
            return bytes(self._pending)

    def _processes(self) -> int:
        answer = self._ask("N", "", _ANSWER_TIMEOUT)
        if answer is None:
            raise SandboxError("the sandbox does not answer")
        return int(answer[0])

    def unpack(self, archive: bytes) -> None:
        """Stream a tar archive to the keeper."""
        with self._lock:
            answer = self._ask("T", f"{len(archive)}", 60 + len(archive) / 1e6, archive)
            if answer is None:
                raise SandboxError("files could not be unpacked: no answer")
            if answer[0] != "0":
                raise UnpackFailed(f"files could not be unpacked: {' '.join(answer[1:])}")

    # -- the transport

    def _send(self, line: bytes) -> None:
        self._transport.send(line + b"\n")

    def _pump(self, timeout: float, output: Output | None = None) -> None:
        for chunk in self._transport.receive(max(0.0, timeout)):
            if chunk.stream == "answers":
                self._answers += chunk.data
            elif output is not None:
                output.add(chunk.data)
            else:
                self._pending += chunk.data
                del self._pending[: -self._output_limit]

    def _take_answer(self, nonce: str) -> tuple[str, list[str]] | None:
        """Take the next whole answer that carries ``nonce``; drop what carries another.

        Returns:
            Its kind and its words; no kind if it is not what an answer can be; None if there is no
            answer yet.
        """
        buffer, mark = self._answers, b" %b" % nonce.encode()
        while (index := buffer.find(mark)) >= 0:
            begin, rest = max(0, index - 1), index + len(mark)
            end = buffer.find(b"\n", rest)
            if end < 0 and len(buffer) - rest <= _MAX_ANSWER:
                self._discard(begin)
                return None
            kind, content = bytes(buffer[begin:index]), bytes(buffer[rest : max(rest, end)])
            self._discard(len(buffer) if end < 0 else end + 1)
            if kind in _ANSWERS:
                words = _parse_answer(kind, content) if 0 <= end <= rest + _MAX_ANSWER else None
                if words is None:
                    return "", []
                if words[:1] != ["alive"]:
                    return kind.decode(), words
        # What may be the beginning of an answer stays.
        self._discard(max(0, len(buffer) - len(mark)))
        return None

    def _discard(self, count: int) -> None:
        """Drop the first bytes of what arrived as answers."""
        self._noise += count
        del self._answers[:count]

    def _ask(self, kind: str, words: str, timeout: float, payload: bytes = b"") -> list[str] | None:
        """Send the keeper a command, and what follows it; return the words of its answer."""
        nonce = secrets.token_hex(8)
        self._send(f"{kind} {nonce} {words}".encode())
        self._transport.send(payload)
        limit = time.monotonic() + timeout
        while (remaining := limit - time.monotonic()) > 0:
            answer = self._take_answer(nonce)
            if answer is not None and answer[0] == kind:
                return answer[1]
            self._pump(min(remaining, 1.0))
        return None
