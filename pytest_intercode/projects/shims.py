"""Shims: programs, first on an agent's PATH, that answer for others or report how they are called.

Each is a small program (``shim.pl``) in a folder that the sandbox can only read. It reports each
call to the process of the test: through a socket in a folder that the sandbox sees, or, if the
engine shares no folder with us, through a port of the sandbox that leads to that socket.

An agent can avoid them: it may leave the folder out of its PATH, call a program by its path, or
report calls that it never made. It cannot take back a call that was reported.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from pytest_intercode.core.call import ShimCall
from pytest_intercode.core.text import one_line
from pytest_intercode.errors import ConfigurationError, SandboxError
from pytest_intercode.projects.fakes import Answer, FakeAnswer, refuse, resolve
from pytest_intercode.projects.shim_programs import FakeLike, ShimPrograms
from pytest_intercode.projects.shim_server import Endpoint, ShimServer
from pytest_intercode.sandboxes.protocol import SHIMS_FOLDER, Sandbox

__all__ = ["Shims"]

__tracebackhide__ = True  # a report shows the line of the test that asked

_SOCKETS_FOLDER = "/opt/intercode/shims.sockets"
_ADDRESS = "/opt/intercode/shims.address"  # where a shim reads the address to ask
_PERL = "/usr/bin/perl"  # runs the shims
_PORTS = range(20_000, 60_000)
_OPEN_TIMEOUT = 60.0  # seconds for the first shim to run in a sandbox
_FUNCTION_TIMEOUT = 5.0  # seconds for a test's function to return after its episode has ended
_MAX_CALLS = 10_000  # recorded calls of an episode
_MAX_BYTES = 32 * 1024**2  # of their texts
_TEXT_BYTES = 16  # that a text counts besides its characters, since texts may be empty
_MAX_STATUS = 255
_NO_PERL = 3  # an exit status of the commands below, like the next one
_NO_PROFILE = 4
# Debian's login shell sets PATH again, and then, like others, reads the files in this folder.
_PROFILE_FOLDER = "/etc/profile.d"
_PROFILE = f"{_PROFILE_FOLDER}/zz-intercode-shims.sh"
_PROFILE_TEXT = f"""\
case $PATH in
{SHIMS_FOLDER}/bin:*) ;;
*) PATH={SHIMS_FOLDER}/bin:$PATH ;;
esac
"""
_MAKE_READY = """\
[ -x {perl} ] || exit {no_perl}
umask 022
printf '%s\\n' {line} >{address} || exit 1
mkdir -p {profile_folder} && printf %s {profile_text} >{profile} || exit {no_profile}
exec {folder}/check
"""


@cache
def _server_of(process: int) -> ShimServer:
    """Return the server of a process; a forked one gets its own."""
    server = ShimServer()
    atexit.register(server.close)
    return server


class Shims:
    """The shims of one episode.

    Args:
        fakes: programs and what answers in their place: a fake, or the path of a script, which is
            run in the sandbox. The script's first line names its interpreter (``#!``).
        watch: programs whose calls are recorded; they run unchanged.
        folder: the folder to which paths of scripts are relative; by default the current directory.
        agent_programs: programs that the agent needs, and that may not be replaced.

    Attributes:
        readonly: folders for the sandbox, as ``SandboxSpec.readonly`` takes them.
        variables: variables for the sandbox. With them the keeper puts the shims first on the PATH
            of the agent's shell only, so that none of our own commands runs a shim.

    Raises:
        ConfigurationError: a program is not a name, is reserved, or is given twice; a script cannot
            be read.
    """

    def __init__(
        self,
        fakes: Mapping[str, FakeLike] | None = None,
        watch: Sequence[str] = (),
        *,
        folder: Path | None = None,
        agent_programs: Collection[str] = (),
    ) -> None:
        self._programs = ShimPrograms.read(fakes or {}, watch, folder or Path(), agent_programs)
        self._log = _CallLog()
        self._endpoint: Endpoint | None = None
        self._end_forwarding: Callable[[], None] | None = None
        self._one_function = asyncio.Lock()
        self._function_thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._server: ShimServer | None = None
        self.readonly: tuple[tuple[str, str], ...] = ()
        self.variables: tuple[tuple[str, str], ...] = ()
        if files := tuple(self._programs.files()):
            self._server = server = _server_of(os.getpid())
            self.readonly = (
                (str(server.programs(files)), SHIMS_FOLDER),
                (str(server.sockets), _SOCKETS_FOLDER),
            )
            # The second variable keeps perl from complaining about a locale that a sandbox lacks.
            self.variables = (("INTERCODE_PATH", f"{SHIMS_FOLDER}/bin"), ("PERL_BADLANG", "0"))

    @property
    def calls(self) -> list[ShimCall]:
        """The calls so far, in the order in which they were made."""
        return self._log.calls

    @property
    def unrecorded(self) -> int:
        """How many calls exceeded the limits and were not recorded; fakes refuse such calls."""
        return self._log.unrecorded

    def check(self) -> None:
        """Check that all functions of fakes returned an answer.

        Raises:
            BaseException: what the first function that failed raised.
        """
        if self._error is not None:
            raise self._error

    def open(self, sandbox: Sandbox) -> None:
        """Make the shims of a sandbox work, before an agent acts in it.

        If an episode begins again in another sandbox, the calls in the first one are forgotten.

        Raises:
            ConfigurationError: the sandbox lacks perl.
            SandboxError: they do not work there.
        """
        if self._server is None:
            return
        self.close()
        self._log, self._error = _CallLog(), None
        self._one_function = asyncio.Lock()  # the previous one may belong to a loop that has ended
        try:
            self._endpoint = endpoint = self._server.open(self._handle)
        except OSError as error:
            raise SandboxError(f"no socket for shims: {error.strerror or error}") from None
        try:
            port = secrets.choice(_PORTS)
            self._end_forwarding = sandbox.forward_port(port, endpoint.path)
            path = f"{_SOCKETS_FOLDER}/{endpoint.path.name}"
            address = f"unix {path}" if self._end_forwarding is None else f"inet {port}"
            _make_ready(sandbox, f"{address} {endpoint.secret}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop answering calls; may be called twice, and from any thread."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None and self._server is not None:
            self._server.end(endpoint)
        end_forwarding, self._end_forwarding = self._end_forwarding, None
        if end_forwarding is not None:
            end_forwarding()
        if (thread := self._function_thread) is not None:
            thread.join(_FUNCTION_TIMEOUT)

    # -- on the server's thread

    async def _handle(self, fields: Sequence[bytes]) -> Sequence[bytes]:
        """Answer a message of a shim, or anything else that an agent sends."""
        verb, *rest = (field.decode("utf-8", "surrogateescape") for field in fields or [b""])
        if verb == "check":
            return b"0", b"", b""
        if verb == "end" and len(rest) == 2:
            self._log.end(*rest)
            return b"0", b"", b""
        if verb == "call" and len(rest) >= 4:
            program, directory, excess, text, *arguments = rest
            call = ShimCall(
                *(program, tuple(arguments), directory, text),
                start_time=time.time(),
                truncated=excess != "",
            )
            if program in self._programs.fakes:
                return _fields_of(await self._answer(call, excess))
            if program in self._programs.watched or program in self._programs.scripts:
                number = self._log.begin(call)
                if number is None and program in self._programs.scripts:
                    return _fields_of(_refuse_excess(call, "calls"))
                return b"run", b"" if number is None else b"%d" % number, b""
        return ()

    async def _answer(self, call: ShimCall, excess: str) -> FakeAnswer:
        """Record the call of a fake, and return its answer."""
        number = self._log.begin(call)
        if number is None:
            return _refuse_excess(call, "calls")
        answer = self._programs.fakes[call.program].find_answer(call.arguments)
        if excess == "arguments":  # a pattern would match arguments that were cut off
            found_answer = _refuse_excess(call, "arguments")
        elif callable(answer) and answer is not refuse:
            async with self._one_function:  # so that functions need not be thread-safe
                found_answer = await self._call_function(answer, call)
        else:
            found_answer = resolve(answer, call)
        self._log.finish(number, found_answer.status, found_answer.refused)
        return found_answer

    async def _call_function(self, answer: Answer, call: ShimCall) -> FakeAnswer:
        """Call a function of the test on a thread, as it may be slow."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[FakeAnswer] = loop.create_future()

        def set_result(result: FakeAnswer) -> None:
            if not future.done():  # it is done if the episode has ended
                future.set_result(result)

        def run() -> None:
            try:
                result = resolve(answer, call)
            except BaseException as error:
                self._error = self._error or error
                reason = f"{call.program}: the test that answers in its place failed\n"
                result = FakeAnswer(stderr=reason, status=1)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(set_result, result)

        self._function_thread = threading.Thread(target=run, name="intercode-fake", daemon=True)
        self._function_thread.start()
        return await future


class _CallLog:
    """The calls of an episode, within limits; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[ShimCall] = []
        self._start_times: list[float] = []  # of each, by the monotonic clock
        self._bytes = 0
        self.unrecorded = 0

    @property
    def calls(self) -> list[ShimCall]:
        """A copy of the calls so far."""
        with self._lock:
            return list(self._calls)

    def begin(self, call: ShimCall) -> int | None:
        """Record a call; return its number, or None if there are too many."""
        texts = (call.directory, call.input, *call.arguments)
        size = sum(map(len, texts)) + _TEXT_BYTES * len(texts)
        with self._lock:
            if len(self._calls) >= _MAX_CALLS or self._bytes + size > _MAX_BYTES:
                self.unrecorded += 1
                return None
            self._bytes += size
            self._calls.append(call)
            self._start_times.append(time.monotonic())
            return len(self._calls) - 1

    def end(self, number: str, status: str) -> None:
        """Record the end that a shim reports; an impossible one is ignored."""
        if all(text.isascii() and text.isdecimal() and len(text) < 9 for text in (number, status)):
            self.finish(int(number), min(int(status), _MAX_STATUS))

    def finish(self, number: int, status: int, refused: bool = False) -> None:
        """Record the end of a call; a second end is ignored."""
        with self._lock:
            if number < len(self._calls) and self._calls[number].status is None:
                seconds = time.monotonic() - self._start_times[number]
                self._calls[number] = replace(
                    self._calls[number], status=status, seconds=seconds, refused=refused
                )


def _make_ready(sandbox: Sandbox, address: str) -> None:
    """Write the address that shims ask into a sandbox, and check that a shim can ask it."""
    command = _MAKE_READY.format(
        perl=_PERL,
        no_perl=_NO_PERL,
        line=shlex.quote(address),
        address=_ADDRESS,
        profile_folder=_PROFILE_FOLDER,
        profile=_PROFILE,
        profile_text=shlex.quote(_PROFILE_TEXT),
        no_profile=_NO_PROFILE,
        folder=SHIMS_FOLDER,
    )
    status, output = sandbox.admin(command, _OPEN_TIMEOUT)
    if status == _NO_PERL:
        raise ConfigurationError(
            f"fake= and watch= need {_PERL} in the sandbox, but the image {sandbox.spec.image} "
            "does not have it; install it there (perl-base in Debian, perl elsewhere)"
        )
    if status != 0:
        reason = one_line(output.decode("utf-8", "replace").strip()[-300:]) or f"status {status}"
        raise SandboxError(f"the shims do not work in sandbox {sandbox.name}: {reason}")


def _fields_of(answer: FakeAnswer) -> tuple[bytes, bytes, bytes]:
    stdout, stderr = (
        text.encode("utf-8", "surrogateescape") for text in (answer.stdout, answer.stderr)
    )
    return b"%d" % answer.status, stdout, stderr


def _refuse_excess(call: ShimCall, noun: str) -> FakeAnswer:
    line = f"{call.program}: refused: too many {noun}\n"
    return FakeAnswer(stderr=line, status=1, refused=True)
