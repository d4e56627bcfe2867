"""The client's side of a keeper: its commands, and the grammar of its answers (``keeper.sh``)."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Literal

from pytest_intercode.errors import CommandFailed, SandboxError, UnpackFailed
from pytest_intercode.sandboxes import lister
from pytest_intercode.sandboxes.output import Output
from pytest_intercode.sandboxes.transport import ChannelClosed, Transport

__all__ = ["MAX_ADMIN_OUTPUT", "Keeper", "keeper_script", "quote"]

MAX_ADMIN_OUTPUT = 256 * 1024**2
"""Bytes that one of our commands may print; one of the agent's programs may be what answers."""

_STATE = "/proc/self/fd/203"  # where the shell writes its state after each action; see keeper.sh
_IDLE_PROCESSES = 2  # processes: the keeper and the shell
_MAX_PROCESSES = 30  # processes: more than the jobs that an action leaves behind
_KILL_TIMEOUT = 2.0  # seconds for the killed processes of a fork bomb to disappear
_ANSWER_TIMEOUT = 5.0  # seconds
_LISTER_TIMEOUT = 15.0  # seconds to load the lister, on a busy machine
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
    # An empty input. No program may have any of these descriptors. When bash executes a program, it
    # closes the copy of a descriptor that it saved for a while, and so each copy of that copy.
    "exec 205</dev/null 10>&- 204>&-; "
    + "".join(f"{{ exec 204>&10; }} {n}>&-; exec {n}>&204 204>&-; " for n in (201, 203, 205))
    + '__ic() { builtin echo "E $1 $?" >&201 || builtin exit; }; '
    '__intercode_status() { builtin return "$1"; }; '
    # `builtin`, as the agent's functions may have any name. Options that would disturb these lines
    # are turned off; the next action turns them on again. The agent's definitions come last in the
    # state, so that they cannot get between the lines that restore the rest. All options are one
    # line, as bash makes one system call for each line that it writes.
    # The answer comes first, so that the client need not wait for the state.
    '__intercode_end() { builtin printf \'D %s %s %s %s\\n\' "$1" "$?" "$-" '
    "\"${PWD//$'\\n'/?}\" >&201 || builtin exit; builtin set +exv; { builtin printf "
    "'shopt -uo ${SHELLOPTS//:/ }; shopt -so %s; shopt -u ${BASHOPTS//:/ }; shopt -s %s\\n' "
    '"${SHELLOPTS//:/ }" "${BASHOPTS//:/ }"; builtin declare -p; builtin umask -p; '
    "builtin printf 'cd -- %q\\n' \"$PWD\"; "
    "builtin declare -f; builtin alias -p; builtin trap -p; "
    f"}} >|{_STATE}; "
    # Never fail, so that the agent's ERR trap does not run for this line.
    "builtin return 0; }; "
)
# Beyond ASCII, the result would depend on how a shell counts characters.
_QUOTED = re.compile(rb"[\x00-\x1f\x7f-\xff'\\]")


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
    """Return the words of an answer; None if it is not a possible answer of its kind."""
    match = _ANSWERS[kind].fullmatch(said)
    words = [word.decode("utf-8", "surrogateescape") for word in match.groups()] if match else None
    if words and kind in (b"D", b"E", b"P") and int(words[kind == b"P"]) > _MAX_STATUS:
        return None
    return words


_MAX_DROPPED = 300  # bytes that are kept of what was read, for messages


class Keeper:
    """Sends the keeper commands, and reads its answers.

    Args:
        transport: carries bytes to the keeper and back.
        output_limit: bytes of output that are kept between two actions.
        flags: variables of the keeper, which are set or empty.
        user: the user who runs the actions; empty for root.

    Attributes:
        transport: what carries bytes.
        user: the user who runs the actions; empty for root.
        answers: bytes that arrived as answers and were not read yet.
        noise: bytes among the answers that are not answers, since the action began.
        dropped: the last bytes of the answers that were read.
        pending: output that arrived outside of any action.
    """

    dropped = b""

    def __init__(
        self, transport: Transport, output_limit: int, flags: Mapping[str, bool], user: str
    ) -> None:
        self.transport = transport
        self.user = user
        self.answers = bytearray()
        self.noise = 0
        self.pending = bytearray()
        self._output_limit = output_limit
        self._has_lister = False
        # If it knows how much is coming, bash reads it in one piece, and not byte by byte.
        start = _SHELL_START.encode()
        settings = "".join(f"{name}={'yes' if value else ''}; " for name, value in flags.items())
        script = b"%buser=%b\n%b" % (settings.encode(), quote(user.encode()), keeper_script())
        transport.send(
            b'IFS= read -rN %d start; IFS= read -rN %d keeper; eval "$keeper"\n%b%b'
            % (len(start), len(script), start, script)
        )

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Report what was printed if the sandbox ends: nothing has acted, so the engine printed it.

        Raises:
            ChannelClosed: the sandbox has ended.
        """
        try:
            yield
        except ChannelClosed as error:
            words = (self.dropped + self.answers).decode("utf-8", "replace").strip()
            printed = repr(words[-_MAX_DROPPED:]) if words else "nothing"
            raise ChannelClosed(f"{error} before its bash answered; it printed {printed}") from None

    def send(self, line: bytes) -> None:
        """Send a line."""
        self.transport.send(line + b"\n")

    def begin_action(self, output: Output) -> None:
        """Count noise from here on, and add what was printed since the last action."""
        self.noise = 0
        if self.pending:
            output.add(bytes(self.pending))
            self.pending.clear()

    def pump(self, timeout: float, output: Output | None = None) -> None:
        """Wait for data; without an output, what was printed belongs to the next action."""
        for chunk in self.transport.receive(max(0.0, timeout)):
            if chunk.stream == "answers":
                self.answers += chunk.data
            elif output is not None:
                output.add(chunk.data)
            else:
                self.pending += chunk.data
                del self.pending[: -self._output_limit]

    def take_answer(self, nonce: str) -> tuple[str, list[str]] | None:
        """Take the next whole answer with ``nonce``, and drop answers with another nonce.

        Returns:
            Its kind and its words; an empty kind if it is not a possible answer; None if there is
            no answer yet.
        """
        # Search for the nonce, and not line by line: an agent may find the descriptor, and write
        # text without an end of line.
        buffer, mark = self.answers, b" %b" % nonce.encode()
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
                    # The caller has to replace the shell: it has the nonce, but does not answer as
                    # our code would.
                    return "", []
                # The shell was assumed to be alive; the answer that is waited for may follow.
                if words[:1] != ["alive"]:
                    return kind.decode(), words
        # Keep the end of the buffer, which may be the beginning of an answer.
        self._discard(max(0, len(buffer) - len(mark)))
        return None

    def _discard(self, count: int) -> None:
        """Drop the first bytes of what arrived as answers."""
        self.noise += count
        latest = self.answers[max(0, count - _MAX_DROPPED) : count]
        self.dropped = (self.dropped + latest)[-_MAX_DROPPED:]
        del self.answers[:count]

    def ask(self, kind: str, words: str, timeout: float, payload: bytes = b"") -> list[str] | None:
        """Send the keeper a command and its payload; return the words of its answer."""
        nonce = secrets.token_hex(8)
        self.send(f"{kind} {nonce} {words}".encode())
        self.transport.send(payload)
        limit = time.monotonic() + timeout
        while (remaining := limit - time.monotonic()) > 0:
            answer = self.take_answer(nonce)
            if answer is not None and answer[0] == kind:
                return answer[1]
            self.pump(min(remaining, 1.0))
        return None

    def read_rest(self, output: Output) -> None:
        """Add what the keeper's stdout holds by now."""
        rest = self.transport.read_output()
        if rest is not None:
            output.add(rest)
            return
        marker = secrets.token_hex(16).encode()
        self.send(b"M " + marker)
        window = bytearray()
        marker_found = False
        limit = time.monotonic() + _ANSWER_TIMEOUT + 25
        while time.monotonic() < limit:
            for chunk in self.transport.receive(1.0):
                if chunk.stream == "answers":
                    self.answers += chunk.data
                    continue
                if marker_found:  # a background job printed it after the marker
                    self.pending += chunk.data
                    continue
                window += chunk.data
                index = window.find(marker)
                if index >= 0:
                    output.add(bytes(window[:index]))
                    self.pending += window[index + len(marker) :]
                    # Go on to the end of the chunks, which are read already and would be lost.
                    marker_found = True
                elif len(window) > len(marker):
                    output.add(bytes(window[: -len(marker)]))
                    del window[: -len(marker)]
            if marker_found:
                return
        raise SandboxError("the sandbox does not answer")

    def kill(self, scope: Literal["", "all"]) -> int:
        """Kill the shell and what the last action started, or everything; return how many."""
        # Wait long: the keeper takes commands in order, so nothing else would be done sooner.
        answer = self.ask("K", scope, 3 * _ANSWER_TIMEOUT)
        if answer is None:
            raise SandboxError("the sandbox does not answer after a kill")
        return int(answer[0])

    def kill_all(self) -> None:
        """Kill everything but the keeper."""
        if self.kill("all") > _MAX_PROCESSES:
            self.wait_for_room(_ANSWER_TIMEOUT)

    def wait_for_room(self, seconds: float = _KILL_TIMEOUT) -> bool:
        """Wait until the killed processes are gone, even on a busy machine; False for a fork bomb.

        Until then the keeper must not start anything: a bash that cannot fork ends.
        """
        limit = time.monotonic() + seconds
        while self.has_bomb():
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        return True

    def has_bomb(self) -> bool:
        """Whether so many processes run that they must be a fork bomb."""
        try:
            return self._count_processes() > _MAX_PROCESSES
        except ChannelClosed:
            raise
        except SandboxError:  # there may be too many for an answer
            return True

    def is_idle(self) -> bool:
        """Whether nothing runs besides the keeper and the shell."""
        return self._count_processes() <= _IDLE_PROCESSES

    def check(self) -> None:
        """Check that the keeper answers.

        Raises:
            ChannelClosed: the sandbox has ended.
            SandboxError: the keeper does not answer in time.
        """
        self._count_processes()

    def _count_processes(self) -> int:
        answer = self.ask("N", "", _ANSWER_TIMEOUT)
        if answer is None:
            raise SandboxError("the sandbox does not answer")
        return int(answer[0])

    def run_command(
        self, kind: bytes, text: bytes, timeout: float, max_output: int, label: str
    ) -> tuple[int, bytes]:
        """Send a command whose answer is a status and arbitrary output.

        Raises:
            CommandFailed: it did not end in time, or printed too much; it is still running.
        """
        nonce = secrets.token_hex(8).encode()
        self.answers.clear()
        self.transport.send(b"%b %b %d\n%b" % (kind, nonce, len(text), text))
        begin, end = b"%b %b\n" % (kind, nonce), b"\n%b %b " % (kind, nonce)
        answers, searched = self.answers, 0  # bytes already searched for the end
        limit = time.monotonic() + timeout
        while (remaining := limit - time.monotonic()) > 0 and len(answers) <= max_output:
            self.pump(min(1.0, remaining))
            index = answers.find(end, max(0, searched - len(end)))
            if index < 0:
                searched = len(answers)
                continue
            searched = index
            status, newline, _ = answers[index + len(end) :].partition(b"\n")
            # The output begins after our line: shells that the agent left may write answers before
            # that.
            start = answers.find(begin, 0, index + 1)
            if newline and start >= 0 and re.fullmatch(rb"\d{1,3}", status):
                output = bytes(answers[start + len(begin) : index])
                answers.clear()
                return int(status), output
        failure = f"did not finish within {timeout:g} s"
        if len(answers) > max_output:
            failure = f"printed more than {max_output} bytes"
        answers.clear()
        raise CommandFailed(f"{failure}: {label[:200]}")

    def load_lister(self) -> None:
        """Give the keeper the program that reads the sandbox's files, before the agent acts.

        Raises:
            SandboxError: there is no such program for its machine, or its bash cannot load it.
        """
        if self._has_lister:
            return
        machine = " ".join(self.ask("V", "", _LISTER_TIMEOUT) or ["?"])
        if machine not in lister.MACHINES:
            machines = " and ".join(lister.MACHINES)
            raise SandboxError(
                f"a sandbox on {machine} cannot be graded: the program that reads its files "
                f"is there for {machines} only"
            )
        text = lister.escape_program(machine)
        if self.ask("B", f"{len(text)}", _LISTER_TIMEOUT, text) != ["0"]:
            raise SandboxError(
                "the sandbox's bash cannot load the program that reads its files: it has to "
                "know `enable -f`, and to be allowed to write to / and run what is there"
            )
        self._has_lister = True

    def unpack(self, archive: bytes) -> None:
        """Stream a tar archive to the keeper."""
        answer = self.ask("T", f"{len(archive)}", 60 + len(archive) / 1e6, archive)
        if answer is None:
            raise SandboxError("files could not be unpacked: no answer")
        if answer[0] != "0":
            raise UnpackFailed(f"files could not be unpacked: {' '.join(answer[1:])}")
